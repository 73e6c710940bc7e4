"""All kernel sources are compiled, for devices of two generations, by nvcc or else by NVRTC."""

import gc
import importlib
import pkgutil
from typing import Any

import numpy as np
import pytest
import test_cuda_fisher
import test_cuda_operators

import nnet3tools.expression
import nnet3tools.nnet
import nnet3tools.tensor
from nnet3tools import tensor
from nnet3tools.tensor.aggregate import Aggregate
from nnet3tools.tensor.cuda.device import PRELUDE, use_device
from nnet3tools.tensor.element import Element
from support import kernel_compilers, model_cupy
from support.emulated_cuda import EmulatedDevice, mirror, to_device


class CollectingDevice(EmulatedDevice):
    """Takes sources down and runs nothing."""

    def __init__(self) -> None:
        super().__init__(runs=False)

    def kernel(self, source: str, name: str, shared_bytes: int = 0) -> Any:
        self.sources[name] = source
        return lambda grid, block, args: None


def _all_formulas() -> tuple[list[Element], list[Aggregate]]:
    """Every formula that a module of the package declares."""
    for room in (nnet3tools.tensor, nnet3tools.nnet, nnet3tools.expression):
        for found in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            if not found.name.endswith(("cuda.cuda", "cuda.cublas")):
                importlib.import_module(found.name)
    objects = gc.get_objects()
    return (
        [o for o in objects if isinstance(o, Element)],
        [o for o in objects if isinstance(o, Aggregate)],
    )


def _bind_formulas() -> None:
    full = to_device(np.ones((8, 16), np.float32))
    wide = to_device(np.ones((8, 19), np.float32))[:, 1:17]
    row = to_device(np.ones(16, np.float32))
    elements, aggregates = _all_formulas()
    for op in elements:
        if op.assignments.reduces_columns:
            continue
        targets = op.assignments.targets
        count = len(op.operands) or op.assignments.num_operands()
        pairs = [(full, full), (wide, wide), (full, row), (wide, 0.5)]
        for matrix, other in pairs[: 2 if op.assignments.reduces_rows else 4]:
            op.bind(*(matrix if i in targets else other for i in range(1, count + 1)))
    for op in aggregates:
        ins = [wide] * max(op.expr.placeholders(), default=1)
        for dtype in (np.float32, np.float64):
            if op.axis is None:
                op.bind(*ins)()
            elif op.axis in (0, 1):
                out = to_device(np.ones((16, 8)[op.axis], dtype))
                op.bind(out, *ins)
                big = to_device(np.ones((20000, 3), np.float32))
                shapes = (3, 20000)
                out = to_device(np.ones(shapes[op.axis], dtype))
                op.bind(out, *[big] * len(ins))


def _bind_operators(monkeypatch: pytest.MonkeyPatch, device: Any) -> None:
    def check(operator, outs, *args, host=(), **options):
        for dtype in (np.float32, np.float64):
            kinds = [a.astype(dtype) if _is_float32(a) else a for a in (*outs, *args)]
            moved = [a if i - len(outs) in host else mirror(a) for i, a in enumerate(kinds)]
            operator(*moved, **options)

    monkeypatch.setattr(test_cuda_operators, "check", check)
    t = test_cuda_operators
    for test, args in (
        (t.test_basics, ()), (t.test_groups, ()), (t.test_patches, ()), (t.test_windows, ()),
        (t.test_row_operations, (1, True)), (t.test_gathering, (1,)),
        (t.test_order_and_cumulative_sums, (0, False)), (t.test_sparse_products, (True,)),
        (t.test_sparse_products, (False,)), (t.test_row_normalisation, (True,)),
        (t.test_compression, ("uint8",)), (t.test_compression, ("int16",)),
        (t.test_softmax_family, ((7, 5),)), (t.test_multi_row_operations, (1,)),
        (t.test_layer_norm, (True,)), (t.test_layer_norm, (False,)),
        (t.test_batch_norm, ()),
        (t.test_lstm, (0,)), (t.test_lstm, (3,)), (t.test_gru, ((6, 2),)), (t.test_gru, ((4,),)),
        (t.test_transposes, ((40, 70), (1, 0), "float32")),
        (t.test_transposes, ((2, 40, 3, 33), (0, 3, 2, 1), "float16")),
        (t.test_joining_and_splitting, (1, "float32")),
        (t.test_joining_and_splitting, (0, "float16")),
        (t.test_splitting_adds_to_one_array_many_times, ()), (t.test_sparse_targets, ()),
        (t.test_random_numbers_are_spread_and_repeat, ()),
    ):  # fmt: skip
        try:
            test(device, *args)
        except (AssertionError, ValueError):
            pass  # nothing was computed; what was asked for is known all the same
    for rank in (7, 80, 97):
        test_cuda_fisher.launch_all(rank)
    half = to_device(np.ones((8, 16), np.float16))
    tensor.element("_1 = _2 * sigmoid(_3)")(half, half, half)
    tensor.aggregate("_1", "logsumexp", axis=1)(to_device(np.ones(8, np.float32)), half)


def _is_float32(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == np.float32


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    """Name -> source of every kernel the package can ask for, in typical layouts."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        model_cupy.install(monkeypatch)
        device = CollectingDevice()
        with use_device(device):
            _bind_formulas()
            _bind_operators(monkeypatch, device)
    return device.sources


# All take 92 s.
@pytest.mark.parametrize("step", [25, pytest.param(1, marks=pytest.mark.slow)])
def test_every_kernel_compiles(sources, tmp_path, step):
    assert len(sources) > 200
    some = list(sources.values())[::step]
    if (path := kernel_compilers.nvcc()) is not None:
        kernel_compilers.compile_with_nvcc(path, PRELUDE + "\n".join(some), tmp_path)
    elif (library := kernel_compilers.nvrtc()) is not None:
        compiled = kernel_compilers.compile_with_nvrtc(library, PRELUDE, some)
        assert compiled > 200 / step - 3
    else:
        pytest.skip("neither nvcc nor NVRTC is installed")


def test_nvrtc_takes_the_kernels_too(sources):
    """It is what compiles them on a user's machine; a few of each kind, also where nvcc is."""
    if (library := kernel_compilers.nvrtc()) is None:
        pytest.skip("NVRTC is not installed")
    some = list(sources.values())[::25]
    compiled = kernel_compilers.compile_with_nvrtc(library, PRELUDE, some, "sm_90")
    assert compiled >= len(some) - 3
    with pytest.raises(AssertionError, match="nonsense"):
        kernel_compilers.compile_with_nvrtc(library, PRELUDE, ["nonsense;"])


def test_kernel_names_are_unique_and_sources_do_not_depend_on_sizes(sources):
    assert all(f"void {name}(" in source for name, source in sources.items())
    with pytest.MonkeyPatch.context() as monkeypatch:
        model_cupy.install(monkeypatch)
        device = CollectingDevice()
        with use_device(device):
            op = tensor.element("_1 = tanh(_2)")
            for rows in (3, 5, 700):
                op(*(to_device(np.ones((rows, 12), np.float32)) for _ in range(2)))
    assert len(device.sources) == 1
