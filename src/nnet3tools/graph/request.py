"""ComputationRequest: the rows of inputs and outputs, and the derivatives, to compute.

Kaldi's structs IoSpecification and ComputationRequest (nnet-computation.h), with index arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO

import numpy as np

from nnet3tools.errors import DataError, RequestError, naming
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.io.files import open_input
from nnet3tools.io.index_vector import read_index_vector, write_index_vector
from nnet3tools.io.reader import Reader
from nnet3tools.io.stream import Writer
from nnet3tools.nnet.indexes import NO_TIME, IndexArray, make_indexes, pack
from nnet3tools.nnet.nnet import Nnet


@dataclass(eq=False)
class IoSpecification:
    """One input given to the network, or one output wanted from it, at the node `name`.

    `indexes` (N, 3) are the rows of its matrix, in order. `has_deriv` means that a derivative at
    the output will be given, or that the derivative at the input is wanted.
    """

    name: str
    indexes: IndexArray
    has_deriv: bool = False

    def __post_init__(self) -> None:
        """Convert `indexes`, such as a list of (n, t, x), to an index array."""
        self.indexes = np.asarray(self.indexes, np.int32)

    @classmethod
    def from_range(
        cls, name: str, t_begin: int, t_end: int, has_deriv: bool = False
    ) -> IoSpecification:
        """A specification with the rows n = 0, x = 0, t = t_begin ... t_end - 1."""
        return cls(name, make_indexes(0, np.arange(t_begin, t_end)), has_deriv)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IoSpecification) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, bool, bytes]:
        return self.name, bool(self.has_deriv), self.indexes.tobytes()

    @classmethod
    def read(cls, reader: Reader) -> IoSpecification:
        """Read an IoSpecification in Kaldi's text or binary form."""
        name = reader.expect_token("<IoSpecification>").read_token()
        declared = reader.expect_token("<NumIndexes>").read_size()
        reader.expect_token("<Indexes>")
        indexes = read_index_vector(reader)
        if len(indexes) != declared:
            raise reader.error(
                f"expected {declared} indexes for '{name}' as declared, found {len(indexes)}"
            )
        has_deriv = reader.expect_token("<HasDeriv>").read_bool()
        reader.expect_token("</IoSpecification>")
        return cls(name, indexes, has_deriv)

    def write(self, writer: Writer) -> None:
        """Write this IoSpecification in Kaldi's form."""
        writer.write_token("<IoSpecification>").write_newline()
        writer.write_token(self.name)
        writer.write_token("<NumIndexes>").write_size(len(self.indexes))
        writer.write_token("<Indexes>")
        write_index_vector(writer, self.indexes)
        writer.write_token("<HasDeriv>").write_bool(self.has_deriv)
        writer.write_newline()
        writer.write_token("</IoSpecification>").write_newline()


@dataclass(eq=False)
class ComputationRequest:
    """Inputs, outputs and derivatives to compute. Equal requests have equal hashes."""

    inputs: list[IoSpecification] = field(default_factory=list)
    outputs: list[IoSpecification] = field(default_factory=list)
    need_model_derivative: bool = False
    store_component_stats: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComputationRequest) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    def key(self) -> tuple[object, ...]:
        """All that is asked, as a tuple of hashable values."""
        specs = [tuple(spec._key() for spec in io) for io in (self.inputs, self.outputs)]
        return (*specs, self.need_model_derivative, self.store_component_stats)

    @property
    def needs_derivatives(self) -> bool:
        """Whether a derivative of the model or of an input is wanted."""
        return self.need_model_derivative or any(spec.has_deriv for spec in self.inputs)

    @property
    def max_output_time(self) -> int:
        """The largest t of all output rows. RequestError if there are no rows."""
        times = [int(spec.indexes[:, 1].max()) for spec in self.outputs if len(spec.indexes)]
        if not times:
            raise RequestError("computation request: it asks for no output rows")
        return max(times)

    def find_input(self, name: str) -> IoSpecification | None:
        """The input with this name; None if the request has no such input."""
        return next((spec for spec in self.inputs if spec.name == name), None)

    def find_output(self, name: str) -> IoSpecification | None:
        """The output with this name; None if the request has no such output."""
        return next((spec for spec in self.outputs if spec.name == name), None)

    def summary(self) -> str:
        """The request in one line for logs: "input 20 rows, output 10 rows + derivative, model"."""
        parts = [
            f"{spec.name} {len(spec.indexes)} rows{' + derivative' if spec.has_deriv else ''}"
            for _, spec in self._specs()
        ]
        if self.need_model_derivative:
            parts.append("model derivative")
        if self.store_component_stats:
            parts.append("statistics")
        return ", ".join(parts)

    def validate(self, nnet: Nnet) -> None:
        """Raise RequestError, in one line, if the request does not fit the network."""
        for kind, spec in self._specs():
            node = nnet.node_index(spec.name)
            if node < 0:
                raise RequestError(f"computation request: the network has no {kind} '{spec.name}'")
            fits = (
                nnet.is_output(node)
                if kind == "output"
                else nnet.is_input(node) or nnet.is_component(node)
            )
            if not fits:
                raise RequestError(
                    f"computation request: node '{spec.name}' cannot be an {kind} of a computation"
                )
            _check_indexes(kind, spec)
        for io, kind in ((self.inputs, "input"), (self.outputs, "output")):
            names = [spec.name for spec in io]
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise RequestError(f"computation request: {kind} '{twice}' is listed twice")
        if not any(len(spec.indexes) for spec in self.outputs):
            raise RequestError("computation request: it asks for no output rows")
        if not any(len(spec.indexes) for spec in self.inputs):
            raise RequestError("computation request: it gives no input rows")
        if self.needs_derivatives and not any(spec.has_deriv for spec in self.outputs):
            raise RequestError(
                "computation request: it wants model or input derivatives, "
                "but gives no derivative of any output"
            )

    def _specs(self) -> Iterator[tuple[str, IoSpecification]]:
        for spec in self.inputs:
            yield "input", spec
        for spec in self.outputs:
            yield "output", spec

    @classmethod
    def read(cls, reader: Reader) -> ComputationRequest:
        """A request in Kaldi's text or binary form. DataError for malformed input."""
        reader.expect_token("<ComputationRequest>")
        num_inputs = reader.expect_token("<NumInputs>").read_size()
        reader.expect_token("<Inputs>")
        inputs = [IoSpecification.read(reader) for _ in range(num_inputs)]
        num_outputs = reader.expect_token("<NumOutputs>").read_size()
        reader.expect_token("<Outputs>")
        outputs = [IoSpecification.read(reader) for _ in range(num_outputs)]
        need_model_derivative = reader.expect_token("<NeedModelDerivative>").read_bool()
        store_component_stats = reader.expect_token("<StoreComponentStats>").read_bool()
        reader.expect_token("</ComputationRequest>")
        return cls(inputs, outputs, need_model_derivative, store_component_stats)

    @classmethod
    def from_text(cls, text: str) -> ComputationRequest:
        """A ComputationRequest from Kaldi's text form as users write it. TextError if malformed."""
        from nnet3tools.grammars.request import read_request

        def specs(listed: list[tuple[str, list[int], bool]]) -> list[IoSpecification]:
            return [
                IoSpecification(name, np.array(numbers, np.int32).reshape(-1, 3), has_deriv)
                for name, numbers, has_deriv in listed
            ]

        inputs, outputs, need_model_derivative, store_component_stats = read_request(text)
        return cls(specs(inputs), specs(outputs), need_model_derivative, store_component_stats)

    @classmethod
    def load(cls, rxfilename: str) -> ComputationRequest:
        """The request in a file, text or binary; UserError, with the file's name, if malformed."""
        with open_input(rxfilename) as reader:
            if reader.binary:
                return cls.read(reader)
            text = reader.read_rest()
        # The grammar is only for errors: importing pyparsing takes half of nnet3-compile's time.
        source = Reader(BytesIO(text.encode(errors="replace")), rxfilename)
        with suppress(DataError):
            request = cls.read(source)
            if not source.read_rest().strip():
                return request
        with naming(rxfilename):
            return cls.from_text(text)

    def write(self, writer: Writer) -> None:
        """Write this ComputationRequest in Kaldi's form."""
        writer.write_token("<ComputationRequest>").write_newline()
        for kind, io in (("Inputs", self.inputs), ("Outputs", self.outputs)):
            writer.write_token(f"<Num{kind}>").write_size(len(io))
            writer.write_newline()
            writer.write_token(f"<{kind}>")
            for spec in io:
                spec.write(writer)
            writer.write_newline()
        writer.write_token("<NeedModelDerivative>").write_bool(self.need_model_derivative)
        writer.write_token("<StoreComponentStats>").write_bool(self.store_component_stats)
        writer.write_token("</ComputationRequest>").write_newline()


def _check_indexes(kind: str, spec: IoSpecification) -> None:
    if spec.indexes.ndim != 2 or spec.indexes.shape[1] != 3:
        raise RequestError(
            f"computation request: the indexes of {kind} '{spec.name}' must have shape (N, 3), "
            f"not {spec.indexes.shape}"
        )
    if len(rows := np.flatnonzero(spec.indexes[:, 1] == NO_TIME)):
        raise RequestError(
            f"computation request: {kind} '{spec.name}' has t={NO_TIME}, which stands for no time, "
            f"in row {rows[0]}"
        )
    keys = np.sort(pack(spec.indexes))
    repeated = np.flatnonzero(keys[1:] == keys[:-1])
    if len(repeated):
        rows = np.flatnonzero(pack(spec.indexes) == keys[repeated[0]])
        n, t, x = spec.indexes[rows[0]]
        raise RequestError(
            f"computation request: {kind} '{spec.name}' lists index (n={n}, t={t}, x={x}) "
            f"more than once (rows {rows[0]} and {rows[1]})"
        )
