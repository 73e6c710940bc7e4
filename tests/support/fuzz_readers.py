"""Every reader of files or words that a user may give: good samples of what it reads, and a call.

A reader of a new kind of file is a row of `READERS`. What was read is written in both forms and
read again, where there is a writer: what is accepted must not be refused later.
"""

import io
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nnet3tools.chain.den_graph import load_denominator_graph
from nnet3tools.chain.example import CHAIN_EXAMPLE
from nnet3tools.chain.example_format import ENCODED_CHAIN_EXAMPLES
from nnet3tools.cli.programs import main_of
from nnet3tools.discriminative.example import DISCRIMINATIVE_EXAMPLE
from nnet3tools.errors import DataError, naming
from nnet3tools.expression.graph import Graph
from nnet3tools.features.segments import parse_segment
from nnet3tools.fst.binary_writer import write_const_fst, write_vector_fst
from nnet3tools.fst.compact_reader import read_compact_acceptor
from nnet3tools.fst.files import FST, read_fst
from nnet3tools.fst.lattice_conversion import top_sorted
from nnet3tools.fst.lattice_files import COMPACT_LATTICE, LATTICE
from nnet3tools.fst.text_form import write_fst_text
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.io import holders
from nnet3tools.io.files import classify_input, classify_output, open_input, read_text_lines
from nnet3tools.io.foreign_features import HTK, SPHINX
from nnet3tools.io.general_matrix import read_general_matrix
from nnet3tools.io.holders import Holder
from nnet3tools.io.reader import Reader
from nnet3tools.io.specifiers import parse_rspecifier, parse_wspecifier
from nnet3tools.io.table import MappedTableReader, RandomAccessTableReader, SequentialTableReader
from nnet3tools.io.wave import WAVE, WAVE_INFO
from nnet3tools.io.writer import Writer
from nnet3tools.lang.arpa import ArpaOptions, arpa_fst
from nnet3tools.lang.lexicon import read_lexicon
from nnet3tools.lang.symbols import SymbolTable
from nnet3tools.nnet.am_nnet import AmNnet
from nnet3tools.nnet.edits import edit_network
from nnet3tools.nnet.hmm.topology import HmmTopology
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.nnet.hmm.tree import ContextDependency
from nnet3tools.nnet.model_file import apply_config_file, load_nnet, read_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cache_files import load_cache
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.program.files import read_computation, write_computation
from nnet3tools.recipe.data_dir import read_map
from nnet3tools.recipe.record import check_recorded
from nnet3tools.recipe.report.log_file import read_log
from nnet3tools.recipe.schedules import parse_dropout_schedule
from nnet3tools.recognizer.live_sound import live_sound
from nnet3tools.recognizer.server_protocol import StreamConfig, parse_text
from nnet3tools.training.example import EXAMPLE
from nnet3tools.training.example_format import ENCODED_EXAMPLES
from nnet3tools.training.lda import LdaStats
from nnet3tools.training.minibatch_rules import MinibatchRules
from nnet3tools.training.xvector_egs import read_ranges
from nnet3tools.xconfig.configs import Conversion, write_config_dir
from support.component_zoo import ZOO
from support.fuzz_programs import OUTPUTS, must_end_well
from support.fuzz_targets import TARGETS

BAD = "BAD"
"""The name of the mutated file."""


@dataclass(frozen=True)
class FuzzReader:
    """One reader."""

    samples: tuple[str, ...]
    """Good files of the corpus."""
    read: Callable[[str], object]
    """Reads the file of this name; UserError if it is bad."""
    share: float = 1.0
    """How many inputs it gets, compared with others."""
    named: bool = True
    """Whether errors name the file (in script files they name the one that a line names)."""
    may_grow: bool = False
    """Whether such a file may ask for more memory than there is: the sizes of a new network."""
    names_files: bool = False
    """Whether such a file may name others to open, and commands, which are refused here."""
    opens: tuple[str, ...] = ()
    """Words with the names of other files that are opened for it."""


def _form(name: str) -> tuple[str, ...]:
    return f"{name}.bin", f"{name}.txt"


# -- things that are read and written


def _again(read: Callable[[Reader], Any], write: Callable[[Writer, Any], object], name: str) -> Any:
    """The value in a file; the value is also written and read again in both forms."""
    with open_input(name) as reader:
        value = read(reader)
    for binary in (True, False):
        file = io.BytesIO()
        writer = Writer(file, binary, "memory")
        writer.write_header()
        write(writer, value)
        file.seek(0)
        copy = Reader(file, f"{name} written again")
        copy.read_header()
        read(copy)
    return value


def _object(read: Callable[[Reader], Any], write: Callable[[Writer, Any], object]) -> Callable:
    return partial(_again, read, write)


def _of_class(kind: Any) -> Callable:
    return _object(kind.read, lambda writer, value: value.write(writer))


def _read_only(read: Callable[[Reader], Any], name: str) -> None:
    with open_input(name) as reader:
        read(reader)


def _bare(kinds: tuple[Holder, ...], name: str) -> None:
    for holder in kinds:
        with open_input(name, header=False) as reader:
            holder.read_object(reader)


def _fst(name: str) -> None:
    with open_input(name, header=False) as reader:
        fst = read_fst(reader)
    for write in (write_vector_fst, write_const_fst, write_fst_text):
        file = io.BytesIO()
        write(Writer(file, True, "memory"), fst)
        file.seek(0)
        read_fst(Reader(file, f"{name} written again"))


# -- tables


def _archive(holder: Holder, name: str) -> None:
    for _ in SequentialTableReader(f"ark:{name}", holder):
        pass


def _both_ways(as_bytes: Holder[Any], in_full: Holder[Any], name: str) -> None:
    """What passes examples on as bytes takes the tables that are read in full, and no others."""
    found: list[Any] = []
    for holder in (as_bytes, in_full):
        try:
            found.append([key for key, _ in SequentialTableReader(f"ark:{name}", holder)])
        except DataError as error:
            found.append(error)
    if isinstance(found[0], DataError) != isinstance(found[1], DataError):
        raise AssertionError(f"as bytes {found[0]!s:.300}; in full {found[1]!s:.300}")
    if isinstance(found[0], DataError):
        raise found[0]


def _segments(name: str) -> None:
    for number, line in enumerate(read_text_lines(name), start=1):
        with naming(f"{name}: line {number}"):
            parse_segment(line)


def _script(name: str) -> None:
    for specifier in (f"scp:{name}", f"scp,p:{name}"):
        for _ in SequentialTableReader(specifier, holders.MATRIX):
            pass


def _random_access(name: str) -> None:
    for options in ("", "s,", "p,", "o,"):
        with RandomAccessTableReader(f"{options}ark:{name}", holders.MATRIX) as reader:
            for key in ("u1", "u0", "none"):
                reader.get(key)


def _random_script(name: str) -> None:
    for options in ("", "p,", "s,cs,"):
        with RandomAccessTableReader(f"{options}scp:{name}", holders.MATRIX) as reader:
            for key in ("u0", "u1", "x"):
                reader.get(key)


def _mapped(name: str) -> None:
    with MappedTableReader("ark:mats.ark", holders.MATRIX, f"ark:{name}") as reader:
        for key in ("u0", "u1"):
            reader.get(key)


# -- networks


def _config(name: str) -> None:
    nnet = Nnet()
    apply_config_file(nnet, name)
    file = io.BytesIO()
    nnet.write(Writer(file, True, "memory"))
    file.seek(0)
    reader = Reader(file, f"{name} written again")
    reader.binary = True
    Nnet.read(reader)


def _edits(name: str) -> None:
    edit_network(_FINAL(), "\n".join(read_text_lines(name)), name)


def _xconfig(name: str) -> None:
    text = "".join(f"{line}\n" for line in read_text_lines(name))
    write_config_dir(Conversion(text, name, "nnet3-xconfig-to-configs", None, ""), "configs")


_models: dict[str, Nnet] = {}


def _FINAL() -> Nnet:
    if "final" not in _models:
        _models["final"] = read_nnet("final.raw")
    return _models["final"].copy()


def _cache(name: str) -> None:
    load_cache(name, CachingOptimizingCompiler(_FINAL()))


# -- words


def _specifier(name: str) -> None:
    from nnet3tools.errors import OptionError

    text = Path(name).read_bytes().decode("utf-8", "surrogateescape")
    for parse in (parse_rspecifier, parse_wspecifier, classify_input, classify_output):
        try:
            parse(text)
        except OptionError:
            continue


def _sizes(name: str) -> None:
    rules = MinibatchRules(Path(name).read_bytes().decode("utf-8", "surrogateescape"))
    for size in (1, 7, 100):
        rules.minibatch_size(size, 64, input_ended=True)


def _options(name: str) -> None:
    main_of("nnet3-merge-egs").command_line.parse([f"--config={name}", "ark:egs", "ark:out"])  # type: ignore[attr-defined]


def _lattices(name: str) -> None:
    """Read lattices of either kind as both kinds, and sort their states."""
    for _, lattice in SequentialTableReader(f"ark:{name}", COMPACT_LATTICE):
        with naming(name):
            top_sorted(lattice)
    for _ in SequentialTableReader(f"ark:{name}", LATTICE):
        pass


def _arpa(name: str) -> None:
    options = ArpaOptions({"<eps>": 0, "a": 1, "b": 2, "<s>": 3, "</s>": 4}, 3, 4, 5)
    with open_input(name, header=False) as reader:
        arpa_fst(reader.lines(), options, name)


def _dropout(name: str) -> None:
    text = Path(name).read_bytes().decode("utf-8", "surrogateescape")
    for function in parse_dropout_schedule(text):
        function.value(0.3)


def _message(name: str) -> None:
    text = Path(name).read_bytes().decode("utf-8", "replace")
    parse_text(text, StreamConfig(16000.0))


def _live_sound(name: str) -> None:
    with open_input(name, header=False) as reader:
        for _ in live_sound(reader, 16000.0, "int16").pieces:
            pass


def _record(name: str) -> None:
    check_recorded(Path(name), {"program": "p", "options": {"x": 1, "y": "z"}, "network": []})


def _log(name: str) -> None:
    Path(f"{name}.1.log").unlink(missing_ok=True)
    Path(f"{name}.1.log").symlink_to(name)
    read_log(f"{name}.1.log")


def _parameters(name: str) -> None:
    Graph().load(name)


def _components(form: str) -> FuzzReader:
    samples = tuple(f"{kind}.{form}" for kind in ZOO)
    return FuzzReader(samples, _of_class(Nnet), share=12)


READERS: dict[str, FuzzReader] = {
    "matrix": FuzzReader(
        (*_form("matrix"), *_form("matrix64"), "matrix.cm2", "matrix.cm3", "matrix.cm5"),
        _object(Reader.read_matrix, Writer.write_matrix),
        share=4,
    ),
    "any matrix": FuzzReader(
        (*_form("matrix"), "matrix.cm2", "matrix.cm3", *_form("sparse")),
        _object(read_general_matrix, holders.GENERAL_MATRIX.write),
        share=4,
    ),
    "vector": FuzzReader(_form("vector"), _object(Reader.read_vector, Writer.write_vector), 2),
    "packed matrix": FuzzReader(_form("packed"), partial(_read_only, Reader.read_packed), 2),
    **{
        f"table of {kind}": FuzzReader(_form(f"{kind}.table"), partial(_archive, holder))
        for kind, holder in (
            ("bool", holders.BOOL),
            ("int", holders.INT32),
            ("float", holders.FLOAT),
            ("double", holders.DOUBLE),
            ("ints", holders.INT32_VECTOR),
            ("word", holders.TOKEN),
            ("words", holders.TOKEN_VECTOR),
        )
    },
    "table of matrices": FuzzReader(
        ("mats.ark", "feats.txt"), partial(_archive, holders.MATRIX), 2
    ),
    "table of any matrices": FuzzReader(
        ("mats.ark", "targets.ark"), partial(_archive, holders.GENERAL_MATRIX), 2
    ),
    "table of vectors": FuzzReader(("vecs.txt",), partial(_archive, holders.VECTOR)),
    "table of posteriors": FuzzReader(_form("posts"), partial(_archive, holders.POSTERIOR), 4),
    "random access": FuzzReader(("mats.ark", "feats.txt"), _random_access, 2),
    "script file": FuzzReader(
        ("mats.scp", "ranges.scp"), _script, 2, named=False, names_files=True
    ),
    "script file at random": FuzzReader(
        ("mats.scp", "ranges.scp"), _random_script, 2, named=False, names_files=True
    ),
    "map of keys": FuzzReader(("utt2spk", "word.table.txt"), _mapped, opens=("mats.ark",)),
    "examples in binary": FuzzReader(("egs", "merged"), partial(_archive, EXAMPLE), 6),
    "examples in text": FuzzReader(("egs.txt",), partial(_archive, EXAMPLE), 3),
    "examples as bytes": FuzzReader(
        ("egs", "merged"), partial(_both_ways, ENCODED_EXAMPLES, EXAMPLE), 6
    ),
    "chain examples as bytes": FuzzReader(
        ("cegs.bin",), partial(_both_ways, ENCODED_CHAIN_EXAMPLES, CHAIN_EXAMPLE), 6
    ),
    "chain examples in binary": FuzzReader(("cegs.bin",), partial(_archive, CHAIN_EXAMPLE), 6),
    "chain examples in text": FuzzReader(("cegs.txt",), partial(_archive, CHAIN_EXAMPLE), 4),
    "discriminative examples in binary": FuzzReader(
        ("degs.bin",), partial(_archive, DISCRIMINATIVE_EXAMPLE), 4
    ),
    "discriminative examples in text": FuzzReader(
        ("degs.txt",), partial(_archive, DISCRIMINATIVE_EXAMPLE), 3
    ),
    "fst": FuzzReader(("fst.vector", "fst.const", "fst.text"), _fst, 4),
    "compact fst": FuzzReader(("fst.compact",), partial(_read_only, read_compact_acceptor), 2),
    "denominator fst": FuzzReader(("fst.den",), partial(load_denominator_graph, num_pdfs=4), 3),
    "table of fsts": FuzzReader(_form("fsts"), partial(_archive, FST), 3),
    "wave": FuzzReader(("sound.wav",), partial(_bare, (WAVE, WAVE_INFO)), 2),
    "features of htk": FuzzReader(("sound.htk",), partial(_bare, (HTK,))),
    "features of sphinx": FuzzReader(("sound.sphinx",), partial(_bare, (SPHINX,))),
    "segments": FuzzReader(("segments",), _segments),
    "model in binary": FuzzReader(("final.raw", "trained.raw", "mono.raw"), _of_class(Nnet), 4),
    "model in text": FuzzReader(("final.txt",), _of_class(Nnet), 4),
    "components in binary": _components("raw"),
    "components in text": _components("txt"),
    "network of .mdl": FuzzReader(("final.mdl", "mdl.txt"), partial(_read_only, load_nnet), 2),
    "acoustic model": FuzzReader(("final.mdl", "mdl.txt"), _of_class(AmNnet), 4),
    "transition model": FuzzReader(_form("transitions"), _of_class(TransitionModel), 3),
    "topology": FuzzReader(("topo", "transitions.txt"), _of_class(HmmTopology), 3),
    "tree": FuzzReader(("tree",), partial(_read_only, ContextDependency.read), 3),
    "request": FuzzReader(
        ("request", "request.txt", "zoo-request"), _of_class(ComputationRequest), 3
    ),
    "program": FuzzReader(
        ("program", "program.txt"), _object(read_computation, write_computation), 4
    ),
    "cache": FuzzReader(("cache",), _cache, 2, named=False, opens=("final.raw",)),
    "config": FuzzReader(
        ("net.config", "mono.config"), _config, 3, may_grow=True, names_files=True
    ),
    "descriptors": FuzzReader(
        tuple(f"descriptor.{i}" for i in range(4)), _config, 4, may_grow=True, names_files=True
    ),
    "formulas": FuzzReader(
        tuple(f"formula.{i}" for i in range(4)), _config, 4, may_grow=True, names_files=True
    ),
    "edits": FuzzReader(("edits",), _edits, 2, opens=("final.raw",)),
    "xconfig": FuzzReader(("layers.xconfig",), _xconfig, 1.5, True, True, True, ("configs",)),
    "options": FuzzReader(("options",), _options, 1),
    "lda statistics": FuzzReader(_form("lda"), _of_class(LdaStats), 2),
    "ranges of x-vectors": FuzzReader(
        ("ranges",), partial(read_ranges, num_archives=2, num_labels=3)
    ),
    "parameters": FuzzReader(("parameters.npz",), _parameters),
    "specifiers": FuzzReader(tuple(f"specifier.{i}" for i in range(7)), _specifier, 1, named=False),
    "lattices": FuzzReader(
        tuple(f"{kind}.lat.{form}" for kind in ("compact", "plain") for form in ("bin", "txt")),
        _lattices,
        4,
    ),
    "language model": FuzzReader(("grammar.arpa",), _arpa, 2),
    "words": FuzzReader(("words.txt",), SymbolTable.load),
    "lexicon": FuzzReader(("lexicon.txt",), partial(read_lexicon, with_probabilities=False)),
    "lexicon of probabilities": FuzzReader(
        ("lexiconp.txt",), partial(read_lexicon, with_probabilities=True)
    ),
    "client's message": FuzzReader(tuple(f"message.{i}" for i in range(3)), _message, named=False),
    "sound of a stream": FuzzReader(("sound.wav", "sound.htk"), _live_sound),
    "record of an experiment": FuzzReader(("exp/experiment.json",), _record),
    "log": FuzzReader(
        ("exp/log/train.0.1.log", "exp/log/progress.1.log"), _log, opens=("BAD.1.log",)
    ),
    "map of speakers": FuzzReader(("utt2spk",), lambda name: read_map(Path(name))),
    "dropout schedules": FuzzReader(("dropout",), _dropout, named=False),
    "minibatch sizes": FuzzReader(tuple(f"sizes.{i}" for i in range(3)), _sizes, 1, named=False),
}


_OPENED = {
    "nnet3-init": (),
    "nnet3-xconfig-to-configs": (),
    "nnet3-check-data": ("recognizer/one.wav", "flac/one.flac"),
}
"""Programs of files that name other files -> other files that they open."""
_MAY_GROW = ("nnet3-init", "nnet3-xconfig-to-configs", "nnet3-make-graph")


def _programs() -> Iterator[tuple[str, FuzzReader]]:
    """The programs that read each kind of file."""
    zoo = tuple(name for name in TARGETS if name.rpartition(".")[0] in ZOO)
    samples = {name: (name,) for name in TARGETS if name not in zoo} | {zoo[0]: zoo}
    for name, files in samples.items():
        numbers = Counter[str]()
        for command in TARGETS[name]:
            called = f"{command[0]} of {'a component' if name in zoo else name}"
            numbers[called] += 1
            run = partial(must_end_well, command)
            grows, names_files = command[0] in _MAY_GROW, command[0] in _OPENED
            words = (*command, *OUTPUTS, *_OPENED.get(command[0], ()))
            reader = FuzzReader(files, run, 0.2, False, grows, names_files, words)
            yield called + (f" ({numbers[called]})" if numbers[called] > 1 else ""), reader


READERS.update(_programs())
