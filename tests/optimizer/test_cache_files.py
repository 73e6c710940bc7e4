"""Cache files: there and back, and nothing of a stale or damaged one is ever run."""

from pathlib import Path

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import DataError
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.nnet.components import registry
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer import cache_files
from nnet3tools.optimizer.cache_files import load_cache, save_cache
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.program.seal import structure_digest
from support.small_requests import CONFIG, request
from support.streams import bytes_reader


def network(*changes: tuple[str, str]) -> Nnet:
    tensor.random.seed(0)
    text = CONFIG
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return Nnet.from_config(parse_config_lines(text, "test"))


def filled(nnet: Nnet | None = None) -> CachingOptimizingCompiler:
    compiler = CachingOptimizingCompiler(nnet or network())
    compiler.compile(request())
    compiler.compile(request(num_sequences=1, train=False))
    return compiler


def loaded(path: object, nnet: Nnet | None = None, **options: object) -> CachingOptimizingCompiler:
    compiler = CachingOptimizingCompiler(nnet or network(), **options)
    used = load_cache(str(path), compiler)
    assert used == bool(compiler.cache)
    return compiler


@pytest.fixture(params=[True, False], ids=["binary", "text"])
def cache(request: pytest.FixtureRequest, tmp_path):
    path = tmp_path / "cache"
    save_cache(str(path), filled(), request.param)
    return path


@pytest.fixture
def unsealed(cache):
    """As Kaldi writes it."""
    data = cache.read_bytes()
    cache.write_bytes(data[: data.index(b"<NetworkStructure>")])
    return cache


def test_nothing_is_compiled_again_and_the_file_stays_the_same(cache):
    compiler = loaded(cache)
    compiler.compile(request())
    compiler.compile(request(num_sequences=1, train=False))
    assert compiler.num_compiled == 0
    again = cache.with_name("again")
    load_cache(str(cache), compiler := CachingOptimizingCompiler(network()))
    save_cache(str(again), compiler, cache.read_bytes()[:1] == b"\0")
    assert again.read_bytes() == cache.read_bytes()


def test_kaldis_file_is_used_and_written_back_byte_for_byte(unsealed):
    compiler = loaded(unsealed)
    assert len(compiler.cache) == 3
    again = unsealed.with_name("again")
    save_cache(str(again), compiler, unsealed.read_bytes()[:1] == b"\0")
    assert again.read_bytes() == unsealed.read_bytes()


def test_other_minibatch_sizes_use_the_cached_program_for_two_sequences(cache):
    compiler = loaded(cache)
    compiler.compile(request(num_sequences=7))
    assert compiler.num_compiled == 1
    assert compiler.seconds["compilation"] == 0.0


def test_order_is_last_use(tmp_path):
    compiler = filled()
    compiler.compile(request())
    save_cache(str(tmp_path / "c"), compiler)
    assert list(loaded(tmp_path / "c").cache)[-1] == request()


STALE = [
    ("offset", ("Offset(input, -1)", "Offset(input, -2)")),
    ("scale", ("Scale(0.5", "Scale(0.25")),
    ("objective", ("input=a3", "input=a3 objective=quadratic")),
    ("time offsets", ("time-offsets=-1,1", "time-offsets=0,1")),
    ("type", ("RectifiedLinearComponent", "SigmoidComponent")),
    ("component", ("input=Sum(Scale(0.5, t2), r1)", "input=t2")),
]


@pytest.mark.parametrize(("what", "change"), STALE)
def test_cache_of_another_network_is_left_alone(tmp_path, capsys, what, change):
    path = tmp_path / "cache"
    save_cache(str(path), filled())
    assert not loaded(path, network(change)).cache
    assert "WARNING" in capsys.readouterr().err


def test_trained_network_has_the_same_structure():
    nnet = network()
    before = structure_digest(nnet)
    for _, component in nnet.updatable_components():
        component.unvectorize(component.vectorize() + 1)
        component.set_underlying_learning_rate(0.5)
    assert structure_digest(nnet) == before
    assert structure_digest(nnet.copy()) == before


def test_other_options_are_not_mixed(cache, capsys):
    options = OptimizeOptions(propagate_in_place=False)
    assert not loaded(cache, optimize_options=options).cache
    assert "other optimization options" in capsys.readouterr().err


def test_missing_file_is_a_warning(tmp_path, capsys):
    assert not loaded(tmp_path / "none").cache
    assert "Probably this is the first training iteration" in capsys.readouterr().err


def test_truncated_file_is_left_alone(cache, capsys):
    data = cache.read_bytes()
    for size in range(0, len(data) - 10, len(data) // 23):
        cache.write_bytes(data[:size])
        assert not loaded(cache).cache
        assert capsys.readouterr().err.count("\n") == 1


def test_damaged_content_is_noticed(cache):
    data = bytearray(cache.read_bytes())
    programs = list(filled().cache.values())
    rng = np.random.default_rng(1)
    for at in rng.integers(0, len(data), 60).tolist():
        damaged = bytearray(data)
        damaged[at] ^= 1 << int(rng.integers(0, 7))
        cache.write_bytes(damaged)
        for found, expected in zip(loaded(cache).cache.values(), programs, strict=False):
            assert found.commands == expected.commands
            assert found.matrices == expected.matrices


def test_damage_without_a_seal_never_raises(unsealed):
    data = unsealed.read_bytes()
    rng = np.random.default_rng(2)
    for at in rng.integers(0, len(data), 60).tolist():
        damaged = bytearray(data)
        damaged[at] = int(rng.integers(0, 256))
        unsealed.write_bytes(damaged)
        loaded(unsealed)


def swapped(path: Path) -> list[ComputationRequest]:
    """A file whose first two requests have each other's program."""
    compiler = filled()
    requests, programs = list(compiler.cache), list(compiler.cache.values())
    compiler.cache[requests[0]], compiler.cache[requests[1]] = programs[1], programs[0]
    save_cache(str(path), compiler)
    return requests


def test_program_that_does_not_fit_its_request_is_refused(tmp_path, capsys):
    requests = swapped(tmp_path / "c")
    compiler = loaded(tmp_path / "c")
    expected = CachingOptimizingCompiler(network()).compile(requests[0])
    assert compiler.compile(requests[0]).commands == expected.commands
    log = capsys.readouterr().err
    assert "Not using a program of the computation cache" in log
    assert "rows were asked for" in log


def test_without_a_seal_it_is_refused_at_once(tmp_path, capsys):
    swapped(tmp_path / "c")
    data = (tmp_path / "c").read_bytes()
    (tmp_path / "c").write_bytes(data[: data.index(b"<NetworkStructure>")])
    assert not loaded(tmp_path / "c").cache
    assert "rows were asked for" in capsys.readouterr().err


def test_only_programs_that_are_asked_for_are_read(cache, monkeypatch):
    read = []
    plain = cache_files.read_computation
    monkeypatch.setattr(
        cache_files, "read_computation", lambda reader: read.append(1) or plain(reader)
    )
    compiler = loaded(cache)
    assert not read
    compiler.compile(request())
    compiler.compile(request())
    assert len(read) == 1


def test_a_program_is_read_without_importing_all_components(cache, monkeypatch):
    """Importing them takes 0.3 s, more than compiling the program."""
    monkeypatch.setattr(registry, "component_types", lambda: pytest.fail("imports all components"))
    monkeypatch.setattr(registry, "_precomputed", {})
    with pytest.raises(DataError, match="unknown type of precomputed indexes"):
        registry.read_precomputed_indexes(bytes_reader(b"<NoComponentPrecomputedIndexes> "))
    monkeypatch.undo()
    registry.component_types()
    for name, cls in registry._precomputed.items():
        family = registry._families()[name.removesuffix("PrecomputedIndexes")]
        assert family == cls.__module__


def test_programs_that_were_not_read_change_their_form_with_the_file(cache):
    binary = cache.read_bytes()[:1] == b"\0"
    compiler = loaded(cache)
    save_cache(str(cache.with_name("other")), compiler, not binary)
    save_cache(str(cache.with_name("back")), loaded(cache.with_name("other")), binary)
    assert cache.with_name("back").read_bytes() == cache.read_bytes()


@pytest.mark.parametrize("sizes", [b"1:2", b"x", b"", b"-1:1", b"9" * 5000])
def test_damaged_sizes_are_noticed(cache, capsys, sizes):
    data = cache.read_bytes()
    cache.write_bytes(data[: data.index(b"<Sizes> ") + 8] + sizes + b" ")
    assert not loaded(cache).cache
    assert "Not using the computation cache" in capsys.readouterr().err


@pytest.mark.parametrize("changes", [(1, 0), (0, -1), (-(10**6), 10**6)])
def test_sizes_that_do_not_add_up_are_damaged_even_if_their_number_is_right(cache, capsys, changes):
    head, sizes = cache.read_bytes().split(b"<Sizes> ")
    numbers = [int(size) for size in sizes.split(b":")]
    numbers[0] += changes[0]
    numbers[1] += changes[1]
    cache.write_bytes(head + b"<Sizes> " + ":".join(map(str, numbers)).encode() + b" ")
    assert not loaded(cache).cache
    assert "the sizes of its programs were damaged" in capsys.readouterr().err


def test_a_seal_without_sizes_is_obeyed(cache):
    """As files had it before programs were read when they are asked for."""
    data = cache.read_bytes()
    cache.write_bytes(data[: data.index(b"<Sizes> ")])
    compiler = loaded(cache)
    assert compiler.vouched
    compiler.compile(request())
    assert compiler.num_compiled == 0
