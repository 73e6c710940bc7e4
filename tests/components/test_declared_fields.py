"""Declared fields (reading, writing, copying ...) of every component type and a test component."""

import functools
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import ConfigError, DataError
from nnet3tools.executor.computer import ComputeOptions, NnetComputer
from nnet3tools.io.stream import Reader
from nnet3tools.nnet.components import array_fields, fields
from nnet3tools.nnet.components.array_fields import (
    Count,
    Derived,
    Matrix,
    Preconditioner,
    Statistic,
    Vector,
)
from nnet3tools.nnet.components.base import Component
from nnet3tools.nnet.components.composite import CompositeComponent
from nnet3tools.nnet.components.declared import Declared, Part
from nnet3tools.nnet.components.field import Field
from nnet3tools.nnet.components.fields import (
    Flag,
    Float,
    Int,
    IntPairs,
    IntVector,
    Mark,
    NotNegative,
    Obsolete,
    Proportion,
)
from nnet3tools.nnet.components.updatable import UpdatableComponent
from nnet3tools.nnet.config import ConfigLine
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient
from nnet3tools.tensor.settings import settings_version
from support.component_zoo import ZOO
from support.harness import backward, check_round_trip, forward, from_bytes, make, rows_of, to_bytes
from support.streams import bytes_of
from support.zoo_networks import zoo_network, zoo_program

COMPOSITE = (
    "type=CompositeComponent num-components=3 max-rows-process=4 "
    "component1='type=NaturalGradientAffineComponent input-dim=4 output-dim=5' "
    "component2='type=RectifiedLinearComponent dim=5' "
    "component3='type=PerElementOffsetComponent dim=5'"
)
KINDS = [*sorted(ZOO), "a composite with natural gradient"]


def new_component(kind: str) -> Component:
    """A new component of this kind, from its config line."""
    tensor.random.seed(1)
    return make(f"type={kind} {ZOO[kind][0]}" if kind in ZOO else COMPOSITE)


@functools.cache
def _train_component(kind: str) -> Component:
    if kind not in ZOO:
        component, rng, rows = (
            new_component(kind),
            np.random.default_rng(1),
            rows_of(new_component(kind), 9),
        )
        for _ in range(3):
            x, dy = (rng.normal(size=(9, dim)).astype(np.float32) for dim in (4, 5))
            y, memo = forward(component, x, rows)
            backward(component, x, y, memo, dy, rows, component)
        return component
    _, nnet = zoo_network(1, [kind])
    program, request = zoo_program(nnet)
    computer = NnetComputer(ComputeOptions(), program, nnet, nnet, nnet_to_store_stats=nnet)
    rng = np.random.default_rng(1)
    for _ in range(3):
        computer.reset()
        given = rng.normal(size=(len(request.inputs[0].indexes), 3)).astype(np.float32)
        computer.accept_input("input", given)
        computer.run()
        shape = computer.get_output("output").shape
        computer.accept_input("output", rng.normal(size=shape).astype(np.float32))
        computer.run()
    return nnet.components[nnet.component_names.index("c0")]


def trained_component(kind: str) -> Component:
    """A component after three minibatches, with statistics and natural-gradient estimates."""
    return _train_component(kind).copy()


def float_arrays(value: Any) -> Iterator[np.ndarray]:
    """All floating-point arrays in an object and its parts, also in undeclared attributes."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f":
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from float_arrays(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from float_arrays(item)
    elif isinstance(value, OnlineNaturalGradient):
        yield from float_arrays(vars(value)) if value.w is not None else ()
    elif isinstance(value, Declared) or type(value).__module__.startswith("nnet3tools.nnet"):
        yield from float_arrays(vars(value))


def parts_of(component: Component) -> list[Component]:
    """The component and, if it is a composite one, its inner components."""
    inner = component.components if isinstance(component, CompositeComponent) else []
    return [component, *inner]


# -- every component type


@pytest.mark.parametrize("kind", KINDS)
def test_changed_setting_outdates_recordings_and_an_equal_one_does_not(kind: str) -> None:
    component = new_component(kind)
    for field in component.FIELDS:
        value = getattr(component, field.name)
        if isinstance(field, Count | Obsolete) or not isinstance(value, bool | int | float):
            continue
        before = settings_version()
        setattr(component, field.name, not value if isinstance(value, bool) else value + 1)
        changed = settings_version()
        assert changed > before, field.name
        setattr(component, field.name, getattr(component, field.name))
        assert settings_version() == changed, field.name


@pytest.mark.parametrize("kind", KINDS)
def test_attributes_are_declared(kind: str) -> None:
    made = new_component(kind)
    for component in (made, trained_component(kind), from_bytes(to_bytes(made, True), True)):
        for part in parts_of(component):
            for name in vars(part):
                declared = getattr(type(part), name, None)
                assert isinstance(declared, (Field, functools.cached_property)), name


@pytest.mark.parametrize("kind", KINDS)
def test_files(kind: str) -> None:
    check_round_trip(new_component(kind))
    component = trained_component(kind)
    component.zero_stats()  # files store averages, so sums read back differ in the last digit
    check_round_trip(component)


@pytest.mark.parametrize("kind", KINDS)
def test_map_arrays_reaches_every_float_array(kind: str) -> None:
    component = trained_component(kind)
    before = list(float_arrays(component))
    component.map_arrays(np.copy)
    after = list(float_arrays(component))
    assert len(after) == len(before)
    assert not {id(array) for array in before} & {id(array) for array in after}
    for old, replaced in zip(before, after, strict=True):
        np.testing.assert_array_equal(replaced, old)


@pytest.mark.parametrize("kind", KINDS)
def test_num_bytes_leaves_out_natural_gradient(kind: str) -> None:
    component = trained_component(kind)
    estimates = [estimate for estimate, _ in component.preconditioners()]
    everything, left_out = (
        sum(array.nbytes for array in float_arrays(value)) for value in (component, estimates)
    )
    assert component.num_bytes() == everything - left_out


@pytest.mark.parametrize("kind", KINDS)
def test_dimensions_of_estimates(kind: str) -> None:
    for estimate, dim in trained_component(kind).preconditioners():
        if estimate.w is not None:
            assert estimate.dim in (dim, dim - 1)  # `dim` has one for a bias even without it


@pytest.mark.parametrize("kind", KINDS)
def test_structure_has_every_setting(kind: str) -> None:
    component = new_component(kind)
    before = component.structure()
    assert new_component(kind).structure() == before
    for part in parts_of(component):
        for field in part.FIELDS:
            if isinstance(field, (Int, Flag, IntVector, IntPairs)):
                value = getattr(part, field.name)
                setattr(part, field.name, not value if isinstance(field, Flag) else value + 1)
                assert component.structure() != before, field.name
                setattr(part, field.name, value)
                assert component.structure() == before, field.name


@pytest.mark.parametrize("kind", KINDS)
def test_structure_is_that_of_a_trained_component(kind: str) -> None:
    component = trained_component(kind)
    again = from_bytes(to_bytes(component, True), True)
    assert again.structure() == component.structure()
    component.map_arrays(lambda array: array + 1)
    assert again.structure() == component.structure()


# -- a made-up component with a field of each kind


class Point(Declared):
    """An inner object of Sample."""

    type_name = "Point"
    INFO = "x y"

    x = Int("<X>", "x", 0)
    y = Int("", "y", lambda point: point.x)


class Sample(UpdatableComponent):
    """A component with fields of every kind and without computation."""

    type_name = "Sample"
    INFO = "dim num_blocks size share slow is_odd is_even sizes point matrix vector count rank"

    dim = Int("<Dim>", "dim", positive=True)
    num_blocks = Int("<NumBlocks>", "num-blocks", lambda c: c.dim, also="<Blocks>")
    size = Float("<Size>", "size", 1.0, omit=True)
    share = Proportion("<Share>", "share", 0.5, optional=True)
    slow = NotNegative("<Slow>", "slow", 0.0, show_default=False)
    is_odd = Flag("<IsOdd>", "is-odd", False, when=lambda c: c.dim > 3)
    is_even = Mark("<IsEven>", "is-even")
    sizes = IntVector("<Sizes>", "sizes")
    pairs = IntPairs("<Pairs>", None, lambda c: np.zeros((0, 2), np.int32))
    point = Part(Point)
    old_count = Obsolete("<OldCount>")
    matrix = Matrix("<Matrix>", key="matrix")
    vector = Vector("<Vector>", key="vector")
    fixed = Vector("<Fixed>", trainable=False)
    count = Count("<Count>", key="count")
    mean = Statistic("<Mean>", "count", shape=lambda c: (c.dim,))
    total = Statistic("<Total>", ndim=2)
    doubled = Derived()
    preconditioner = Preconditioner(rank=2)
    unfrozen = Preconditioner(freezes=False)
    rank = Int("<Rank>", "rank", 3, of=("preconditioner.rank", "unfrozen.rank"))

    @property
    def input_dim(self) -> int:
        return self.dim

    def init_from_config(self, line: ConfigLine) -> None:
        self.matrix = np.full((2, self.dim), line.get_float("fill", 1.0), np.float32)
        self.vector = np.arange(self.dim, dtype=np.float32)

    def problem(self) -> str | None:
        return None if self.dim % self.num_blocks == 0 else f"{self.num_blocks} is no divisor"

    def derive(self) -> None:
        self.doubled = 2 * self.vector


LINE = "dim=4 num-blocks=2 share=0.25 slow=2 is-odd=true is-even=true sizes=3,1 x=7 rank=5 fill=0.5"
TEXT = (
    "<Sample> <LearningRate> 0.001 <Dim> 4 <NumBlocks> 2 <Share> 0.25 <Slow> 2 <IsOdd> T <IsEven> "
    "<Sizes> [ 3 1 ]\n<Pairs> [ ]\n<Point> <X> 7 7 </Point> "
    "<Matrix>  [\n  0.5 0.5 0.5 0.5 \n  0.5 0.5 0.5 0.5 ]\n<Vector>  [ 0 1 2 3 ]\n<Fixed>  [ ]\n"
    "<Count> 0 <Mean>  [ 0 0 0 0 ]\n<Total>  [ ]\n<Rank> 5 </Sample> "
)


def sample(more: str = LINE) -> Sample:
    """A component from a config line; fails if it leaves a key unread."""
    line = ConfigLine(f"component {more}")
    made = Sample.from_config(line)
    assert not line.unused_keys()
    return made


def with_statistics() -> Sample:
    """A component with statistics of four rows."""
    made = sample()
    made.count, made.mean, made.total = 4.0, np.arange(4.0), np.ones((1, 2))
    return made


def read(text: str | bytes, binary: bool = False) -> Sample:
    """The component that a file with this content has."""
    reader = Reader(io.BytesIO(text if isinstance(text, bytes) else text.encode()), "f", binary)
    reader.expect_token("<Sample>")
    return Sample.read(reader)


def file_content(component: Sample, binary: bool = False) -> bytes:
    """The content of the component's file."""
    return bytes_of(component.write, binary=binary)


def test_sample_has_every_kind_of_field() -> None:
    named = [pair for m in (fields, array_fields) for pair in vars(m).items() if pair[0][0] != "_"]
    kinds = {k for _, k in named if isinstance(k, type) and issubclass(k, Field) and k is not Field}
    assert {*kinds, Part} <= {type(field) for field in Sample.FIELDS}


def test_sample_from_config() -> None:
    made = sample()
    assert (made.dim, made.num_blocks, made.share, made.slow, made.size) == (4, 2, 0.25, 2.0, 1.0)
    assert made.is_odd
    assert made.is_even
    assert made.sizes.tolist() == [3, 1]
    assert (made.point.x, made.point.y) == (7, 7)
    assert made.rank == made.preconditioner.rank == made.unfrozen.rank == 5
    assert made.doubled.tolist() == [0, 2, 4, 6]
    plain = sample("dim=3 sizes=1")
    assert (plain.num_blocks, plain.share, plain.slow, plain.rank) == (3, 0.5, 0.0, 3)
    assert (plain.is_odd, plain.is_even) == (False, False)
    assert plain.preconditioner.rank == plain.unfrozen.rank == 3
    assert set(vars(made)) <= {field.name for field in Sample.FIELDS}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sizes=1", "missing required key 'dim'"),
        ("dim=3", "missing required key 'sizes'"),
        ("dim=0 sizes=1", "dim must be positive, found 0"),
        ("dim=3 sizes=1 share=1.5", "share must be between 0 and 1, found 1.5"),
        ("dim=3 sizes=1 slow=-1", "slow must not be negative"),
        ("dim=3 sizes=1 is-odd=2", "expected true or false for 'is-odd'"),
        ("dim=3 sizes=a", "expected integers"),
        ("dim=3 sizes=1 num-blocks=2", "2 is no divisor"),
        ("dim=3 sizes=1 rank=0", "rank must be positive, found 0"),
    ],
)
def test_sample_of_a_bad_line(line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sample(line)


def test_sample_is_made_of_keywords() -> None:
    made = Sample(dim=2, vector=np.ones(2, np.float32))
    assert made.num_blocks == 2
    assert made.doubled.tolist() == [2, 2]
    with pytest.raises(TypeError, match="no field 'width'"):
        Sample(width=3)
    with pytest.raises(AttributeError, match="no 'sizes'"):
        _ = made.sizes


@pytest.mark.parametrize("binary", [False, True])
def test_sample_files(binary: bool) -> None:
    for made in (sample(), with_statistics(), sample("dim=3 sizes=1 size=2")):
        again = read(file_content(made, binary), binary)
        assert file_content(again, binary) == file_content(made, binary)
        assert again.structure() == made.structure()
        assert again.info() == made.info()
        assert again.doubled.tolist() == made.doubled.tolist()


def test_sample_in_text() -> None:
    assert file_content(sample()).decode() == TEXT
    seen = read(file_content(with_statistics()))
    assert b"<Count> 4 <Mean>  [ 0 0.25 0.5 0.75 ]\n" in file_content(seen)
    assert seen.mean.tolist() == [0, 1, 2, 3]
    assert seen.mean.dtype == np.float64
    assert seen.total.tolist() == [[1, 1]]
    assert sample().total is None
    small = file_content(sample("dim=3 sizes=1 size=2")).decode()
    assert "<Size> 2 <Share> 0.5 <Slow> 0 <Sizes>" in small  # no <IsOdd> of dim 3, no mark


def test_sample_of_older_files() -> None:
    text = TEXT.replace("<NumBlocks>", "<Blocks>").replace("<Share> 0.25 ", "")
    text = text.replace("<Matrix>", "<OldCount> 17.5 <Matrix>").replace(
        "<Sample> ", "<Sample> " * 2
    )
    old = read(text)
    assert (old.num_blocks, old.share) == (2, 0.5)
    assert file_content(old).decode() == TEXT.replace("0.25", "0.5")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<Dim> 4", "<Dim> 0", "<Dim> must be positive, found 0"),
        ("<Dim>", "<Dims>", "expected <Dim>, found <Dims>"),
        ("<NumBlocks>", "<Number>", "expected <NumBlocks> or <Blocks>, found <Number>"),
        ("<NumBlocks> 2", "<NumBlocks> 3", "Sample: 3 is no divisor"),
        ("<Share> 0.25", "<Share> 2", "<Share> must be between 0 and 1, found 2"),
        ("[ 0 0 0 0 ]", "[ 0 0 ]", r"<Mean> must be of shape \(4,\), found \(2,\)"),
        ("<Rank> 5", "<Rank> -5", "rank must be positive"),
        ("</Point>", "<Point>", "expected </Point>, found <Point>"),
        ("</Sample>", "<Sample>", "expected </Sample>, found <Sample>"),
    ],
)
def test_sample_of_a_bad_file(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(DataError, match=message):
        read(TEXT.replace(old, new))


def test_sample_info() -> None:
    assert sample().info() == (
        "Sample, dim=4, num-blocks=2, share=0.25, slow=2, is-odd=true, is-even=true, sizes=3,1, "
        "Point, x=7, y=7, matrix-rms=0.5, vector-{mean,stddev}=1.5,1.118, count=0, rank=5"
    )
    assert (
        sample("dim=1 sizes=1 size=3")
        .info()
        .startswith("Sample, dim=1, num-blocks=1, size=3, share=0.5, is-odd=false, sizes=1, Point")
    )


def test_sample_scaled() -> None:
    made = with_statistics()
    made.fixed = np.ones(2, np.float32)
    made.scale(0.5)
    assert made.matrix.tolist() == [[0.25] * 4] * 2
    assert made.vector.tolist() == [0, 0.5, 1, 1.5]
    assert made.count == 2.0
    assert made.mean.tolist() == [0, 0.5, 1, 1.5]
    assert made.total.tolist() == [[0.5, 0.5]]
    assert (made.fixed.tolist(), made.size, made.rank) == ([1, 1], 1.0, 5)
    made.matrix[:], made.mean[:] = np.nan, np.inf
    made.scale(0.0)
    assert not made.matrix.any()
    assert not made.mean.any()
    assert made.count == 0.0


def test_sample_added() -> None:
    made, other = sample(), with_statistics()
    made.add(0.5, other)
    assert made.matrix.tolist() == [[0.75] * 4] * 2
    assert made.vector.tolist() == [0, 1.5, 3, 4.5]
    assert made.count == 2.0
    assert made.mean.tolist() == [0, 0.5, 1, 1.5]
    assert made.total.tolist() == [[0.5, 0.5]]
    assert other.count == 4.0
    assert other.total.tolist() == [[1, 1]]


def test_sample_without_statistics() -> None:
    made = with_statistics()
    made.zero_stats()
    assert made.count == 0.0
    assert not made.mean.any()
    assert not made.total.any()
    assert file_content(made).decode() == TEXT.replace("<Total>  [ ]", "<Total>  [\n  0 0 ]")


def test_sample_copied() -> None:
    made = with_statistics()
    kept = file_content(made)
    other = made.copy()
    assert file_content(other) == kept
    other.scale(3.0)
    other.rank, other.point.x, other.sizes[0] = 9, 1, 8
    assert file_content(made) == kept
    assert made.preconditioner.rank == 5
    assert other.preconditioner.rank == 9


def test_sample_parameters() -> None:
    made = sample()
    assert list(made.parameters()) == ["matrix", "vector"]
    assert made.num_parameters == 12
    made.unvectorize(np.arange(12, dtype=np.float32))
    assert made.vectorize().tolist() == list(range(12))
    assert [dim for _, dim in made.preconditioners()] == [5, 5]
    made.freeze_natural_gradient(True)
    assert (made.preconditioner.frozen, made.unfrozen.frozen) == (True, False)


def test_sample_walks() -> None:
    made = with_statistics()
    made.fixed = np.ones(2, np.float32)
    made.preconditioner.precondition(np.ones((3, 5), np.float32))
    before = list(float_arrays(made))
    assert len(before) == 9  # six fields, and an estimate with three arrays
    made.map_arrays(np.copy)
    assert not {id(a) for a in before} & {id(a) for a in float_arrays(made)}
    assert made.num_bytes() == 4 * (8 + 4 + 4 + 2) + 8 * (4 + 2)
    for name, value in (("dim", 8), ("is_even", False), ("sizes", np.ones(1, int)), ("rank", 1)):
        other = made.copy()
        setattr(other, name, value)
        assert other.structure() != made.structure()
    other.point.x = 0
    assert other.structure() != made.structure()
