"""Compiled programs in the cache folder: the same as compiled ones, and never a wrong one."""

import os
import pickle
import stat
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pytest

from nnet3tools import tensor
from nnet3tools.compiler.compiler import Compiler
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.graph.spot_checks import draw_graph_checks
from nnet3tools.io import log
from nnet3tools.nnet.components.activations import TanhComponent
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer import kept_programs
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.program.files import encoded_computation
from support.small_requests import CONFIG, request


def network(old: str = "", new: str = "") -> Nnet:
    return Nnet.from_config(parse_config_lines(CONFIG.replace(old, new) if old else CONFIG, "test"))


class Run:
    """Compiles with the cache folder of a test, as a process of its own would."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "programs"
        self.compiled: list[ComputationRequest] = []
        self.warnings: list[str] = []
        real = Compiler.compile

        def counted(compiler, requests, *words):
            self.compiled += requests
            return real(compiler, requests, *words)

        monkeypatch.setattr(Compiler, "compile", counted)
        monkeypatch.setattr(log, "warning", self.warnings.append)
        monkeypatch.setenv("NNET3TOOLS_CACHE", str(folder))
        monkeypatch.setenv("NNET3TOOLS_NO_PROGRAM_CACHE", "0")

    def __call__(
        self, asked: ComputationRequest | None = None, nnet: Nnet | None = None, **options
    ):
        """(whether anything was compiled, bytes of the program, the next random number)."""
        self.compiled.clear()
        nnet = nnet or network()
        tensor.random.seed(5)
        compiler = CachingOptimizingCompiler(nnet, **options)
        program = encoded_computation(compiler.compile(asked or request()), True)
        return bool(self.compiled), program, tensor.random.rand()

    def files(self) -> list[Path]:
        return sorted(self.folder.iterdir()) if self.folder.exists() else []


@pytest.fixture
def run(tmp_path, monkeypatch) -> Run:
    return Run(tmp_path / "cache", monkeypatch)


@pytest.mark.parametrize("hook", [None, draw_graph_checks])
@pytest.mark.parametrize("asked", [request(), request(1, 3), request(2, 9)])
def test_a_kept_program_is_the_compiled_one_and_draws_as_many_numbers(run, hook, asked):
    """A training repeats Kaldi's decisions only if compiling draws, or seems to draw, the same."""
    first = run(asked, after_exploring=hook)
    again = run(asked, after_exploring=hook)
    assert (first[0], again[0]) == (True, False)
    assert first[1:] == again[1:]


def test_draws_do_not_depend_on_the_state_in_which_a_program_was_kept(run):
    nnet = network()

    def drawn(seed: int) -> int:
        tensor.random.seed(seed)
        CachingOptimizingCompiler(nnet, after_exploring=draw_graph_checks).compile(request())
        return tensor.random.rand()

    drawn(0)
    kept = [drawn(seed) for seed in range(20)]
    for path in run.files():
        path.unlink()
    for seed in range(20):
        assert drawn(seed) == kept[seed]
        run.files()[0].unlink()


@pytest.mark.parametrize(
    ("asked", "old", "new", "options"),
    [
        (request(4, 7), "", "", {}),
        (None, "Offset(input, 2)", "Offset(input, 1)", {}),
        (None, "time-offsets=-1,1", "time-offsets=0,1", {}),
        (None, "", "", {"optimize_options": OptimizeOptions(optimize=False)}),
        (None, "", "", {"after_exploring": draw_graph_checks}),
    ],
    ids=["request", "descriptor", "component", "options", "draws"],
)
def test_whatever_decides_a_program_is_in_the_name_of_its_file(run, asked, old, new, options):
    run()
    assert run(asked, network(old, new), **options)[0]
    assert len(run.files()) == 2


def test_a_program_is_compiled_anew_after_a_change_of_the_code(run, monkeypatch):
    run()
    sources = list(kept_programs._sources())
    assert {"expand.py", "compiler.py", "tdnn.py"} < {name for _, name, *_ in sources}
    monkeypatch.setattr(kept_programs, "_sources", lambda: sources[1:])
    assert run()[0]


def test_other_parameters_do_not_matter(run):
    tensor.random.seed(1)
    run(nnet=network())
    assert not run(nnet=network())[0]


def test_more_sequences_share_a_kept_program(run):
    run(request(4))
    compiled, program, _ = run(request(9))
    assert not compiled
    (kept,) = run.files()
    kept.unlink()
    assert run(request(9))[1] == program


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-40], lambda data: b"", lambda data: b"x" + data[1:]]
)
def test_a_damaged_file_is_replaced(run, damage):
    _, program, _ = run()
    (kept,) = run.files()
    whole = kept.read_bytes()
    kept.write_bytes(damage(whole))
    assert run()[:2] == (True, program)
    assert kept.read_bytes() == whole


class Spy:
    """An object whose pickle would call a function when it is read."""

    def __reduce__(self):
        return os.system, ("true",)


@pytest.mark.parametrize("content", [b"no pickle", pickle.dumps(Spy()), pickle.dumps(log.log)])
def test_a_file_of_other_content_calls_nothing_and_is_replaced(run, content):
    _, program, _ = run()
    (kept,) = run.files()
    kept.unlink()
    assert kept_programs.publish(content, kept)
    assert run()[:2] == (True, program)
    (warning,) = run.warnings
    assert "compiling anew" in warning
    assert not run()[0]


@pytest.mark.parametrize("what", ["folder", "file"])
def test_what_others_can_write_is_not_read(run, what):
    run()
    (kept,) = run.files()
    victim = kept if what == "file" else run.folder
    victim.chmod(victim.stat().st_mode | stat.S_IWOTH)
    assert run()[0]


def test_links_are_not_followed(run, tmp_path):
    run()
    (kept,) = run.files()
    kept.rename(tmp_path / "elsewhere")
    kept.symlink_to(tmp_path / "elsewhere")
    assert run()[0]


def test_without_a_folder_programs_are_compiled_each_time(run, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert [run()[0] for _ in range(2)] == [True, True]
    assert not run.warnings


def test_what_fails_while_writing_leaves_nothing(run, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert run()[0]
    assert not run.files()


def test_it_can_be_switched_off(run, monkeypatch):
    run()
    monkeypatch.setenv("NNET3TOOLS_NO_PROGRAM_CACHE", "1")
    assert run()[0]


def test_who_watches_the_compilation_sees_it(run, monkeypatch):
    run()
    seen: list[str] = []
    run(after_pass=lambda name, *_: seen.append(name))
    assert seen
    assert run(after_exploring=lambda *_: None)[0]
    monkeypatch.setattr(log, "get_verbose", lambda: 2)
    assert run()[0]


def test_components_of_users_are_compiled_each_time(run):
    """Their code can change without a change of ours."""
    nnet = network("RectifiedLinear", "Tanh")
    kind = type("OwnComponent", (TanhComponent,), {"__module__": "own"})
    place = next(i for i, c in enumerate(nnet.components) if isinstance(c, TanhComponent))
    nnet.components[place].__class__ = kind
    assert [run(nnet=nnet)[0] for _ in range(2)] == [True, True]


def test_the_least_recently_used_programs_go_first(run, monkeypatch):
    for frames in (3, 4, 5):
        run(request(1, frames))
    kept = run.files()
    for age, path in enumerate(kept):
        os.utime(path, (1000 - age, 1000 - age))
    run(request(1, 3))  # used now
    used = max(kept, key=lambda path: path.stat().st_mtime)
    monkeypatch.setattr(kept_programs, "_MOST_BYTES", sum(p.stat().st_size for p in kept) - 1)
    run(request(1, 6))
    left = run.files()
    assert used in left
    assert len(left) == 2


def test_several_writers_leave_one_whole_file(run):
    program = run()[1]
    for path in run.files():
        path.unlink()
    nnet = network()
    with ThreadPool(4) as pool:
        made = pool.map(lambda _: CachingOptimizingCompiler(nnet).compile(request()), range(4))
    assert {encoded_computation(one, True) for one in made} == {program}
    assert len(run.files()) == 1
    assert not run()[0]
