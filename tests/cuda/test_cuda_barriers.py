"""Each __syncthreads() is needed: without it some order of threads, warps or blocks shows.

A barrier that no order on the emulated device can show carries a comment with "Needed" that says
what for; one that nothing needs is taken out. `python tests/cuda/test_cuda_barriers.py` prints the
table.
"""

import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import test_cuda_chain as chain
import test_cuda_fisher as fisher
import test_cuda_formulas as formulas
import test_cuda_fused_levels as levels
import test_cuda_operators as operators

from nnet3tools import tensor
from nnet3tools.tensor import cuda
from nnet3tools.tensor.cuda.device import use_device
from support import model_cupy
from support.emulated_cuda import REAL, EmulatedDevice, needs_compiler
from support.model_streams import Schedule

pytestmark = [
    needs_compiler, pytest.mark.slow, pytest.mark.skipif(REAL, reason="edits kernels"),
]  # fmt: skip

BACKEND = Path(cuda.__file__).parent
BARRIER = "__syncthreads();"
ORDERS = (Schedule.EARLY, Schedule.LATE, Schedule.RANDOM)
"""Backwards first: it shows most."""

Check = Callable[[EmulatedDevice], object]
CHECKS: dict[str, tuple[Check, ...]] = {
    "leaky_hmm/kernel.cuh": (partial(chain.test_denominator, num_sequences=3),),
    "order/kernel.cuh": (partial(operators.test_order_and_cumulative_sums, axis=1, flag=False),),
    "numerator/kernel.cuh": (
        partial(chain.test_numerator, same=False), partial(chain.test_numerator, same=True),
    ),
    "transpose/kernel.cuh": (
        partial(operators.test_transposes, shape=(33, 9, 41), axes=(2, 1, 0), dtype="float32"),
        partial(operators.test_transposes, shape=(2, 40, 3, 33), axes=(0, 3, 2, 1), dtype="bool"),
    ),
    "level_source.py": (
        levels.test_a_closing_step_sees_what_all_threads_did_in_the_one_before,
        levels.test_numbers_have_no_kernels_of_their_own,
        partial(levels.test_training_is_the_same_bit_for_bit_with_and_without_graphs, dropout=True),
    ),
    "fisher/row_products.cuh": (fisher.test_products_of_all_estimates_are_those_of_each,),
    "fisher/fisher_replace.cuh": (
        fisher.test_new_estimates_come_from_old_ones_unless_those_diverged,
    ),
    "fisher/fisher_step.cuh": (
        partial(fisher.test_estimates_are_those_of_the_host, rank=20, dim=41),
        partial(fisher.test_estimates_are_those_of_the_host, rank=97, dim=120),
        fisher.test_matrices_that_rounding_made_indefinite_are_those_of_the_host,
    ),
    "fisher/orthonormalize.cuh": (
        partial(
            fisher.test_rows_become_orthonormal_again_where_they_are_not,
            doubtful=1.0, damage="heavy", shape=(6, 17),
        ),
        partial(
            fisher.test_rows_become_orthonormal_again_where_they_are_not,
            doubtful=1.0, damage="none", shape=(6, 17),
        ),
        partial(
            fisher.test_rows_become_orthonormal_again_where_they_are_not,
            doubtful=1.0, damage="dependent", shape=(6, 17),
        ),
    ),
    "prelude.cuh": (
        formulas.test_a_row_formula_in_place_is_one_kernel,
        partial(operators.test_softmax_family, shape=(7, 300)),
        partial(operators.test_order_and_cumulative_sums, axis=0, flag=False),
        formulas.test_long_reductions_are_cut_into_chunks,
        partial(formulas.test_reductions, reduce="sum", axis=0, layout="transposed"),
        partial(operators.test_layer_norm, centred=True),
        operators.test_batch_norm,
    ),
}  # fmt: skip


class Spot(NamedTuple):
    """A barrier: file, line, its text with the lines around it, whether a comment speaks for it."""

    file: str
    line: int
    pattern: str
    is_explained: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def spots() -> Iterator[Spot]:
    """All barriers of the backend."""
    own = [*BACKEND.glob("*.py"), *BACKEND.glob("*.cuh")]
    for path in sorted([*own, *BACKEND.parent.glob("operators/*/*.cuh")]):
        lines = path.read_text().splitlines()
        for i, line in enumerate(lines):
            if BARRIER in line:
                comments = "\n".join(lines[max(0, i - 4) : i])
                name = path.name if path in own else f"{path.parent.name}/{path.name}"
                yield Spot(name, i + 1, _pattern(path, lines, i), "Needed" in comments)


def _pattern(path: Path, lines: list[str], i: int) -> str:
    """What finds it in a kernel's source: the same text between the same lines."""
    if "append(" in lines[i]:  # a generator's: the one before its last loop
        return rf"()__syncthreads\(\);(?=(?:(?!{re.escape(BARRIER)}).)*\Z)"
    doubled = path.suffix == ".py" and "{{" in path.read_text()

    def literal(line: str) -> str:
        line = line.strip().replace("{{", "{").replace("}}", "}") if doubled else line.strip()
        return r"\s*".join(re.escape(word) for word in line.split())

    before, after = lines[i - 1], lines[i + 1]
    own = re.escape(lines[i].strip()[: -len(BARRIER)].strip())
    usable = [x if not re.search(r"\bT\b|\{\w|nn_do|\"\"\"", x) else "" for x in (before, after)]
    head, tail = (literal(x) for x in usable)
    return rf"({head}\s*{own}\s*){re.escape(BARRIER)}(?=\s*{tail})"


def without(spot: Spot) -> Callable[[str], str]:
    """What takes it out of a source."""
    return lambda source: re.sub(spot.pattern, r"\1;", source, count=1, flags=re.S)


def noticed_by(spot: Spot) -> str:
    """The order in which some test fails without it; "" if none does."""
    changed = []

    def change(source: str) -> str:
        made = without(spot)(source)
        changed.append(made != source)
        return made

    for order in ORDERS:
        for check in CHECKS[spot.file]:
            if not _passes(check, order, change):
                return order.name.lower()
    assert any(changed) or spot.is_explained, f"{spot} is in no kernel that its tests launch"
    return ""


def _passes(check: Check, order: Schedule, change: Callable[[str], str]) -> bool:
    with pytest.MonkeyPatch.context() as monkeypatch:
        model_cupy.install(monkeypatch)
        monkeypatch.setattr(model_cupy, "rewrite", [change])
        tensor.random.seed(0)
        device = EmulatedDevice(order)
        try:
            with use_device(device):
                check(device)
        except AssertionError:
            return False
        finally:
            device.machine.memory.unguard()
        return True


@pytest.mark.parametrize("file", sorted(CHECKS))
def test_no_barrier_can_be_taken_out_unnoticed(file):
    for order in ORDERS:
        for check in CHECKS[file]:
            assert _passes(check, order, lambda source: source), f"{file} fails as it is"
    found = [spot for spot in spots() if spot.file == file]
    assert found
    unnoticed = [str(s) for s in found if not noticed_by(s) and not s.is_explained]
    assert not unnoticed


def test_all_files_with_barriers_have_tests():
    assert {spot.file for spot in spots()} == set(CHECKS)


def main() -> None:
    """Print the table."""
    print("| barrier | noticed | explained |\n|---|---|---|")
    for spot in spots():
        if not sys.argv[1:] or spot.file in sys.argv[1:]:
            row = spot, noticed_by(spot) or "-", "yes" if spot.is_explained else ""
            print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main()
