"""Numbers in text: 1_000, Unicode digits and thousands of digits are refused in one line."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import nnet3tools
from nnet3tools.decoding.endpoint import EndpointOptions
from nnet3tools.errors import DataError, OptionError
from nnet3tools.features.frames import select_columns
from nnet3tools.features.segments import parse_segment
from nnet3tools.io.files import number_in, split_offset
from nnet3tools.lang.arpa import ArpaOptions, arpa_fst
from nnet3tools.lang.lexicon import read_lexicon
from nnet3tools.lang.ngram_model import read_vocabulary
from nnet3tools.lang.symbols import SymbolTable, read_numbers, read_sets
from nnet3tools.lang.trees import PhoneCounts
from nnet3tools.number_text import parse_counts, parse_double, parse_int
from nnet3tools.options import colon_list
from nnet3tools.recipe.data_dir import read_number_map
from nnet3tools.recipe.schedules import chunk_widths
from nnet3tools.training.selection import FrameSelection
from nnet3tools.training.splitting import ExampleGenerationOptions
from nnet3tools.training.xvector_egs import read_ranges
from support.programs import run

MODEL = (
    "input-node name=input dim=2\ncomponent name=c type=NoOpComponent dim=2\n"
    "component-node name=c component=c input=Offset(input, {offset})\n"
    "output-node name=output input=c\n"
)
TEXTS = {
    "matrix": ("copy-feats", "u  [\n 1_0 2 ]\n"),
    "integers": ("copy-int-vector", "u 1_0 2\n"),
    "vector": ("copy-vector", "u  [ 1_0 2 ]\n"),
    "length": ("feat-to-len", "u  [\n 1 2_0 ]\n"),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_in_tables(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program, text = TEXTS[kind]
    (tmp_path / "in.txt").write_text(text)
    out = ["ark,t:-"]
    assert run(program, f"ark:{tmp_path}/in.txt", *out) != 0
    log = capfd.readouterr().err
    assert "_0" in log
    assert "Traceback" not in log


@pytest.mark.parametrize(
    "option", ["--frames-per-chunk=5_0", "--frame-subsampling-factor=1_0", "--acoustic-scale=1_0.5"]
)
def test_in_options(option: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.config").write_text(MODEL.format(offset=1))
    (tmp_path / "in.txt").write_text("u  [\n 1 2\n 3 4 ]\n")
    assert run("nnet3-init", tmp_path / "net.config", tmp_path / "0.raw") == 0
    assert run("nnet3-compute", option, tmp_path / "0.raw", f"ark:{tmp_path}/in.txt", "ark:-") != 0
    assert option.split("=")[1] in capfd.readouterr().err


def test_in_models(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config, model = tmp_path / "net.config", tmp_path / "0.raw"
    config.write_text(MODEL.format(offset="1_0"))
    assert run("nnet3-init", config, model) != 0
    config.write_text(MODEL.format(offset=10))
    assert run("nnet3-init", "--binary=false", config, model) == 0
    text = model.read_text()
    assert "<NumComponents> 1 " in text
    model.write_text(text.replace("<NumComponents> 1 ", "<NumComponents> 0_1 "))
    assert run("nnet3-info", model) != 0
    assert "0_1" in capfd.readouterr().err


MANY = "9" * 5000
AWKWARD = [MANY, "0" * 5000 + "x", "1_0", "\u0661", "\u00b2", "nan", "1 2", "", "4294967297"]


@pytest.mark.parametrize("text", AWKWARD)
def test_only_decimal_numbers_of_32_bits_are_integers(text: str) -> None:
    assert parse_int(text) is None
    assert parse_counts(["1", text]) is None


@pytest.mark.parametrize(
    "text", ["9" * 10**6 + "x", "1." + "9" * 10**6 + "e", "9e" + "0" * 10**6 + "x"]
)
def test_no_text_takes_more_than_linear_time(text: str) -> None:
    began = time.process_time()
    assert parse_int(text) is None
    assert parse_double(text) is None
    assert time.process_time() - began < 2, "4,000 digits and a letter took a second"


def test_signs_blanks_and_leading_zeros_are_read() -> None:
    assert [parse_int(text) for text in (" 7\n", "+7", "-7", "0" * 5000 + "7")] == [7, 7, -7, 7]
    assert (parse_int("-7", 0), parse_int("7", 8), parse_int("2147483647")) == (
        None,
        None,
        2**31 - 1,
    )
    assert [parse_double(text) for text in ("1e3", ".5", "5.", "-inf")] == [1e3, 0.5, 5.0, -np.inf]
    assert all(
        parse_double(text) is None for text in ("1_0", "\u0661", "0x1", "", "1e", MANY + "x")
    )


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("fstcopy", "u \n0 1 1 1 {}\n1\n\n"),
        ("lattice-copy", "u \n0 1 1 1 {},0\n1 0,0\n\n"),
        ("lattice-copy", "u \n0 1 1 {},0,3\n1 0,0,\n\n"),
    ],
)
@pytest.mark.parametrize("number", ["1_0", "\u0661", "x"])
def test_in_graphs_and_lattices(
    program: str, text: str, number: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text(text.format("1.5"))
    assert run(program, f"ark:{tmp_path}/in", "ark,t:-") == 0
    (tmp_path / "in").write_text(text.format(number))
    assert run(program, f"ark:{tmp_path}/in", "ark,t:-") != 0
    assert "bad line in" in capfd.readouterr().err


READERS: dict[str, Callable[[str], object]] = {
    "a {}": SymbolTable.load,
    "{}": read_numbers,
    "1 {}": read_sets,
    "1 {} 3": PhoneCounts.load,
    "a {}\n": read_vocabulary,
    "a {} b": lambda path: read_lexicon(path, with_probabilities=True),
    "{}\n": number_in,
    "u 1 0.5 0 {} 3": lambda path: read_ranges(path, 9, 9),
    "u {}": lambda path: read_number_map(Path(path), parse_int),
    "u r 0 {}": lambda path: parse_segment(Path(path).read_text()),
    "u r 0 1 {}": lambda path: parse_segment(Path(path).read_text()),
}


@pytest.mark.parametrize("form", READERS)
@pytest.mark.parametrize("text", [*AWKWARD[:6], "x"])
def test_readers_of_files_refuse_awkward_numbers(form: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(form.format(text))
    with pytest.raises(DataError) as caught:
        READERS[form](str(tmp_path / "file"))
    assert len(str(caught.value)) < 400 + len(str(tmp_path)) or "segments" in str(caught.value)


OPTIONS: dict[str, Callable[[str], object]] = {
    "chunk-width": chunk_widths,
    "num-frames": lambda text: ExampleGenerationOptions(num_frames=text).chunk_sizes(),
    "frame": lambda text: FrameSelection(frame=text),
    "columns": lambda text: select_columns(text, 9),
    "silence-phones": lambda text: colon_list(text, "list"),
    "endpoint": lambda text: EndpointOptions(silence_phones=text).phones(),
    "offset": lambda text: split_offset(
        "a:" + (text if text.isascii() and text.isdigit() else MANY)
    ),
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("text", AWKWARD[:6])
def test_options_refuse_awkward_numbers(option: str, text: str) -> None:
    with pytest.raises(OptionError):
        OPTIONS[option](text)


@pytest.mark.parametrize("option", ["--num-iters={}", "--left-context={}", "--srand={}"])
@pytest.mark.parametrize("text", AWKWARD[:6])
def test_options_of_programs_refuse_awkward_numbers(
    option: str, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    program = {"--n": "nnet3-combine", "--l": "nnet3-copy-egs", "--s": "nnet3-copy-egs"}[option[:3]]
    assert run(program, option.format(text), "a", "b", "c") != 0
    assert "Traceback" not in capfd.readouterr().err


def test_ranges_of_rows_refuse_awkward_numbers(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.txt").write_text("u  [\n 1 2\n 3 4 ]\n")
    assert run("copy-feats", f"ark:{tmp_path}/in.txt", f"ark,scp:{tmp_path}/a,{tmp_path}/s") == 0
    script = (tmp_path / "s").read_text().strip()
    for text in AWKWARD[:6]:
        (tmp_path / "s").write_text(f"{script}[0:{text}]\n")
        assert run("copy-feats", f"scp:{tmp_path}/s", "ark,t:-") != 0
    log = capfd.readouterr().err
    assert "expected a range of rows" in log
    assert "Traceback" not in log


def test_an_arpa_header_with_thousands_of_digits_is_passed_over() -> None:
    options = ArpaOptions({"a": 1, "<s>": 2, "</s>": 3}, 2, 3, 0)
    lines = ["\\data\\", f"ngram 1={MANY}", f"ngram {MANY}=1", "\\1-grams:", "-1 a", "\\end\\"]
    with pytest.raises(DataError, match="section missing or empty"):
        arpa_fst(lines, options, "lm")


def test_no_reader_of_its_own_decides_what_a_number_is() -> None:
    """isdecimal() allows Unicode digits and thousands of digits: number_text.py is the reader.

    tests/support/number_plugin.py finds int() and float() of text, but not if map() calls them.
    """
    of_their_own = {
        "recipe/chain_egs.py", "recipe/local.py",  # names that the recipe made
        "recipe/report/log_file.py", "recipe/report/history.py",  # at most nine digits by a pattern
        "cli/started_processes.py", "cli/resident.py",  # /proc
        "tensor/cuda/level_source.py", "tensor/formulas/parse.py",  # no text of files
        "tensor/arrays.py", "optimizer/prune_matrices.py",  # integers of NumPy
        "grammars/request.py", "xconfig/layers/statistics.py", "io/text.py",  # matched a pattern
    }  # fmt: skip
    source = Path(nnet3tools.__file__).parent
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"\.is(decimal|digit|numeric)\(|map\((int|float),", path.read_text())
    }
    assert found == of_their_own
