"""Runs a network on examples.

A program is compiled and lowered once for each structure of example; after that a minibatch only
fills the inputs and runs the flat list of calls again. The reading thread may decompress and check
an example and send it to the device ahead of its use.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager

import numpy as np

from nnet3tools.errors import DataError
from nnet3tools.executor.binding import Arena, out_of_memory
from nnet3tools.executor.computer import ComputeOptions, NnetComputer
from nnet3tools.executor.memory_plan import plan_memory
from nnet3tools.fast_dataclasses import dataclass, field, replace
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.io.general_matrix import check_finite, to_dense
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.nodes import OutputNode
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.program.analysis import Analysis
from nnet3tools.program.computation import Computation
from nnet3tools.tensor.registry import on_host
from nnet3tools.tensor.workspace import Workspace
from nnet3tools.training.device_inputs import DeviceInputs, Packed
from nnet3tools.training.example import NnetExample, NnetIo
from nnet3tools.training.objective import (
    Ahead,
    Evaluation,
    FrameObjective,
    Objective,
    SparseTargets,
)

_OF_FRAMES = FrameObjective()
_MOST_REQUESTS = 64
"""The number of different requests that are kept."""


def computation_request(
    nnet: Nnet,
    example: NnetExample,
    need_model_derivative: bool,
    store_component_stats: bool,
    objective: Objective = _OF_FRAMES,
) -> ComputationRequest:
    """The request to compute an example's outputs from its inputs.

    DataError if the example has an input or output that the network lacks.
    """
    request = ComputationRequest(
        need_model_derivative=need_model_derivative, store_component_stats=store_component_stats
    )
    for io in example.io:
        node = nnet.node_index(io.name)
        if node < 0 or not (nnet.is_input(node) or nnet.is_output(node)):
            raise DataError(
                f"example has input or output named '{io.name}', but no such input or output node "
                "is in the network"
            )
        if nnet.is_input(node):
            request.inputs.append(IoSpecification(io.name, io.indexes))
    request.outputs += objective.outputs(nnet, example, need_model_derivative)
    for kind, specs in (("input", request.inputs), ("output", request.outputs)):
        if not specs:
            raise DataError(f"example has no {kind}")
    return request


def check_dim(nnet: Nnet, io: NnetIo) -> None:
    """DataError unless an example's input or output has the network's dimension for its node."""
    is_input = nnet.is_input(nnet.node_index(io.name))
    expected = nnet.input_dim(io.name) if is_input else nnet.output_dim(io.name)
    if io.dim != expected:
        message = f"example's '{io.name}' has dimension {io.dim}: the network expects {expected}"
        raise DataError(message)


@dataclass
class PreparedExample(NnetExample):
    """An example as it was read, with the results of ExampleRunner.prepare on a GPU.

    `packed` has its arrays in pinned memory, `ahead` the results of the objective's `prepare`.
    `weights` has the weight of each output's sparse targets.
    """

    packed: Packed = field(kw_only=True)
    """The arrays of each io, inputs first, and those that the objective prepared, in buffers.

    The arrays of an io are its dense features, or those of SparseTargets.padded.
    """
    ahead: Ahead | None = None
    request: ComputationRequest | None = None
    """The computation request; equal requests are mostly the same object."""
    weights: dict[str, float] = field(default_factory=dict)


@dataclass
class ReadyExample(NnetExample):
    """An example on the device, checked; its features are dense matrices or SparseTargets.

    `place` (of all arrays) and `place_of_inputs` are keys that are equal for arrays of the same
    shapes in the same GPU memory.
    """

    place: Hashable = None
    place_of_inputs: Hashable = None
    ahead: Ahead | None = None
    """The arrays and facts that the objective prepared."""
    request: ComputationRequest | None = None
    """The computation request, if it is known."""


class ExampleRunner:
    """Runs a network on examples; a program is made once for each structure of examples.

    `nnet_to_update`, unless None, receives the model derivative; component statistics go into
    `nnet`. The network runs on the device of the array `like` (default: the host).
    """

    def __init__(
        self,
        nnet: Nnet,
        compiler: CachingOptimizingCompiler | None = None,
        options: ComputeOptions | None = None,
        nnet_to_update: Nnet | None = None,
        need_model_derivative: bool = False,
        store_component_stats: bool = False,
        like: Array | None = None,
        objective: Objective = _OF_FRAMES,
    ) -> None:
        self.nnet = nnet
        self._objective = objective
        self._compiler = compiler or CachingOptimizingCompiler(nnet)
        self._options = options or ComputeOptions()
        self._nnet_to_update = nnet_to_update
        self._flags = need_model_derivative, store_component_stats
        self._computers: dict[int, NnetComputer] = {}
        self._num_bound, self._num_runs = 0, 0
        """The number of lowered programs, and of examples run."""
        self._arena = Arena(like)
        self._latest: Computation | None = None
        self._device_inputs: DeviceInputs | None = None
        self._requests: dict[ComputationRequest, ComputationRequest] = {}
        if not on_host(like):
            from nnet3tools.tensor.cuda.device import get_device

            self._device_inputs = DeviceInputs(get_device(), like)

    @property
    def workspace(self) -> Workspace:
        """The programs' scratch memory, for other work that never runs at the same time."""
        return self._arena.workspace

    @property
    def ahead(self) -> ExampleRunner | None:
        """This object on a GPU, to prepare examples for `for_each_example`; None on a CPU.

        On a CPU reading, decompressing and checking take so little time that a thread does not pay.
        """
        return None if self._device_inputs is None else self

    # -- preparing ahead

    def prepare(self, example: NnetExample) -> NnetExample:
        """For a GPU: decompress and check an example, and pack it into pinned host memory.

        One thread may call this while others train. An example that does not fit is returned
        unchanged, and `forward` raises the error.
        """
        assert self._device_inputs is not None
        inputs, targets, weights = list[np.ndarray](), list[np.ndarray](), dict[str, float]()
        try:
            example.check_finite()
            for io in example.io:
                if (node := self.nnet.node_index(io.name)) < 0:
                    return example
                if self.nnet.is_input(node):
                    inputs.append(self._input_matrix(io))
                elif self._keeps_sparse(io):
                    assert isinstance(io.features, SparseMatrix)
                    sparse = SparseTargets.of(io.features)
                    weights[io.name] = sparse.weight
                    targets += sparse.padded()
                else:
                    targets.append(to_dense(io.features))
            ahead = self._objective.prepare(self.nnet, example)
            request = self._known(self._request(example))
        except DataError:
            return example
        more = ahead.arrays if ahead else ()
        packed = self._device_inputs.pack([*inputs, *targets, *more], len(inputs))
        return PreparedExample(
            example.io, ahead, request, weights, packed=packed, supervisions=example.supervisions
        )

    def _request(self, example: NnetExample) -> ComputationRequest:
        return computation_request(self.nnet, example, *self._flags, self._objective)

    def _known(self, request: ComputationRequest) -> ComputationRequest:
        """The equal request that was made earlier, if there is one, else `request` itself."""
        if len(self._requests) >= _MOST_REQUESTS:
            self._requests.clear()
        return self._requests.setdefault(request, request)

    def send(self, example: NnetExample) -> None:
        """Start copying a prepared example to the GPU; does nothing for unprepared examples."""
        if isinstance(example, PreparedExample):
            assert self._device_inputs is not None
            self._device_inputs.send(example.packed)

    @contextmanager
    def ready(self, example: NnetExample) -> Iterator[NnetExample]:
        """Scope in which `example`, prepared or not, is available as a ReadyExample.

        NotFiniteError, before anything is changed, if the example has NaN or infinity.
        """
        if not isinstance(example, PreparedExample):
            example.check_finite()
            if self._device_inputs is not None:
                example = self.prepare(example)
        if not isinstance(example, PreparedExample) or self._device_inputs is None:
            yield example
            return
        try:
            yield self._with_arrays(example, self._device_inputs.arrays(example.packed))
        except MemoryError as error:
            raise self._explained(error) from None
        self._device_inputs.release(example.packed)

    def _explained(self, error: MemoryError) -> Exception:
        """An error for lack of GPU memory that lists the uses of memory and possible remedies."""
        from nnet3tools.tensor.cuda.device import get_device

        if self._latest is None:
            return error
        accesses = Analysis(self._latest, self.nnet).matrix_accesses
        plan = plan_memory(self._latest, accesses, compress_lossy=True)
        return out_of_memory(plan, self._latest, self.nnet, get_device().memory())

    def _keeps_sparse(self, io: NnetIo) -> bool:
        node = self.nnet.nodes[self.nnet.node_index(io.name)]
        linear = isinstance(node, OutputNode) and node.criterion == "linear"
        return linear and isinstance(io.features, SparseMatrix)

    def _with_arrays(self, example: PreparedExample, arrays: list[Array]) -> ReadyExample:
        left, found = iter(arrays), dict[str, NnetIo]()
        inputs = {io.name for io in self.inputs(example)}
        for io in sorted(example.io, key=lambda io: io.name not in inputs):
            features = next(left)
            if self._keeps_sparse(io):
                assert isinstance(io.features, SparseMatrix)
                weight = example.weights[io.name]
                rows, cols = next(left), next(left)
                features = SparseTargets(rows, cols, features, io.features.shape, weight)
            found[io.name] = replace(io, features=features)
        ahead = example.ahead and replace(example.ahead, arrays=list(left))
        ready = [found[io.name] for io in example.io]
        places = example.packed.place, example.packed.place_of_inputs
        return ReadyExample(
            ready, *places, ahead, example.request, supervisions=example.supervisions
        )

    # -- running

    def compile(self, example: NnetExample) -> Computation:
        """The cached or newly compiled program for an example; compiling draws random numbers."""
        request = example.request if isinstance(example, ReadyExample) else None
        return self._compiler.compile(request or self._request(example))

    def forward(self, example: NnetExample) -> NnetComputer:
        """Run the forward pass on an example; returns the computer, which has the outputs.

        DataError for an example that does not fit the network, or whose inputs are not finite.
        """
        computation = self._latest = self.compile(example)
        if (computer := self._computers.get(id(computation))) is None:
            moves = self._arena.moves
            computer = NnetComputer(
                self._options,
                computation,
                self.nnet,
                self._nnet_to_update,
                nnet_to_store_stats=self.nnet,
                arena=self._arena,
                repeats=self._will_repeat(),
            )
            self._num_bound += 1
            if self._arena.moves > moves:
                # They would keep the old memory alive. Binding them again takes 10 to 30 ms.
                self._computers.clear()
            self._keep(computer)
        else:
            computer.reset()
        if isinstance(example, ReadyExample):
            matrices = {io.name: io.features for io in self.inputs(example)}
            computer.accept_inputs(matrices, example.place_of_inputs)
        else:
            computer.accept_inputs({io.name: self._input_matrix(io) for io in self.inputs(example)})
        self._num_runs += 1
        computer.run()
        return computer

    def _will_repeat(self) -> bool:
        """Whether to record a new program's first run, to replay it: will it probably run again?

        Recording takes a quarter longer. It pays in training unless most programs run only once,
        but not in diagnostics, whose second run would wait for the compiler of kernels.
        """
        need_model_derivative, _ = self._flags
        few_programs = self._num_bound < 2 or self._num_runs >= 2 * self._num_bound
        return need_model_derivative and few_programs

    def _keep(self, computer: NnetComputer) -> None:
        """Store a computer by its program; drop the oldest above the compiler's cache capacity."""
        while len(self._computers) >= max(1, self._compiler.options.cache_capacity):
            del self._computers[next(iter(self._computers))]
        self._computers[id(computer.computation)] = computer

    def log_time(self) -> None:
        """Log how long compiling took, as Kaldi does at the end of a program."""
        self._compiler.log_time()

    def inputs(self, example: NnetExample) -> list[NnetIo]:
        """The inputs of an example."""
        return [io for io in example.io if self.nnet.is_input(self.nnet.node_index(io.name))]

    def evaluations(self, example: NnetExample, computer: NnetComputer) -> list[Evaluation]:
        """The evaluations of objectives for an example whose forward pass `computer` has run.

        If the model's derivative is needed, they also write the outputs' derivatives to `computer`.
        """
        need_deriv, _ = self._flags
        return self._objective.evaluations(self.nnet, example, computer, need_deriv)

    def report(self) -> None:
        """Log the warnings that the objective has delayed; waits for the device."""
        self._objective.report()

    def _input_matrix(self, io: NnetIo) -> np.ndarray:
        check_dim(self.nnet, io)
        matrix = to_dense(io.features)
        check_finite(f"'{io.name}'", matrix)
        return matrix
