"""The optimizer: a literal list of passes, and the runner that applies them.

Every pass maps a valid program to a valid program with the same results. The runner checks, times
and logs.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from nnet3tools.compiler.io_order import consolidate_io
from nnet3tools.errors import DataError, ProgramError, RequestError
from nnet3tools.io import log
from nnet3tools.optimizer.allocate_from_other import allocate_from_other
from nnet3tools.optimizer.consolidate_model_update import consolidate_model_update
from nnet3tools.optimizer.convert_addition import convert_addition
from nnet3tools.optimizer.extend_matrices import extend_matrices
from nnet3tools.optimizer.initialize_undefined import initialize_undefined
from nnet3tools.optimizer.limit_derivative_times import limit_derivative_times
from nnet3tools.optimizer.looped_computation import fix_goto_label, looped_computation
from nnet3tools.optimizer.memory_compression import memory_compression
from nnet3tools.optimizer.merge_variables import merge_variables
from nnet3tools.optimizer.move_sizing_commands import move_sizing_commands
from nnet3tools.optimizer.optimize_row_ops import optimize_row_ops
from nnet3tools.optimizer.pass_context import PassContext, Transform
from nnet3tools.optimizer.renumber import renumber
from nnet3tools.optimizer.rewrites import Rewrites
from nnet3tools.optimizer.snip_row_ops import snip_row_ops
from nnet3tools.optimizer.split_row_ops import split_row_ops
from nnet3tools.program.checker import Checker, check_computation
from nnet3tools.program.computation import Computation
from nnet3tools.program.printing import sizes_text

Wanted = Callable[[PassContext], bool]

AfterPass = Callable[[str, Computation, Computation], None]
"""Called after a pass with its name and the program before and after it."""


class Pass(NamedTuple):
    """A pass of the optimizer: name, function, and `wanted(context)`: whether to run it."""

    name: str
    transform: Transform
    wanted: Wanted


def _always(context: PassContext) -> bool:
    return True


def _if(*names: str, in_loops: bool = True) -> Wanted:
    """Condition for a pass: option `optimize` and at least one of the options `names` are on.

    With `in_loops` false, the pass does not run for looped programs (`context.looped`).
    """

    def wanted(context: PassContext) -> bool:
        options = context.options
        on = options.optimize and any(getattr(options, name) for name in names)
        return on and (in_loops or not context.looped)

    return wanted


def _renumber(computation: Computation, context: PassContext) -> Computation:
    return renumber(computation)


def _order_io(computation: Computation, context: PassContext) -> Computation:
    out = computation.copy()
    consolidate_io(out)
    return fix_goto_label(out)


PASSES: tuple[Pass, ...] = (
    # First, also without optimization: later passes then have fewer rows.
    Pass(
        "limit-derivative-times",
        limit_derivative_times,
        lambda context: context.options.limits_deriv_times,
    ),
    # Makes many small copies for single row operations, which later passes may remove.
    Pass("consolidate-model-update", consolidate_model_update, _if("consolidate_model_update")),
    # Relies on every matrix being zeroed at first; makes copies that merging can remove.
    Pass("convert-addition", convert_addition, _if("convert_addition")),
    # Each of these three helps the next: shorter lists split better, and split lists more often
    # have consecutive rows.
    Pass("snip-row-ops", snip_row_ops, _if("snip_row_ops")),
    Pass("split-row-ops", split_row_ops, _if("split_row_ops")),
    Pass("optimize-row-ops", optimize_row_ops, _if("optimize_row_ops")),
    Pass("renumber", _renumber, _if("snip_row_ops", "split_row_ops", "optimize_row_ops")),
    # Before merging, which then can join the longer matrices; a loop's matrices must keep the
    # sizes by which they are recognised.
    Pass("extend-matrices", extend_matrices, _if("extend_matrices", in_loops=False)),
    Pass(
        "merge-variables",
        merge_variables,
        _if("remove_assignments", "backprop_in_place", "propagate_in_place"),
    ),
    # After merging: fewer and more completely written matrices are left.
    Pass("initialize-undefined", initialize_undefined, _if("initialize_undefined")),
    # After the zeroing went, which tied allocations to the start. Loops need it in any case, or
    # every matrix would be alive at every splice point.
    Pass(
        "move-sizing-commands",
        move_sizing_commands,
        lambda context: _if("move_sizing_commands")(context) or context.looped,
    ),
    # Before allocate-from-other, whose swaps would hide equal matrices.
    Pass("looped-computation", looped_computation, lambda context: context.looped),
    Pass("allocate-from-other", allocate_from_other, _if("allocate_from_other", in_loops=False)),
    # Passes have moved commands about; the executor needs this order.
    Pass("consolidate-io", _order_io, _always),
    # Last: no command may access a matrix between compression and decompression.
    Pass(
        "memory-compression",
        memory_compression,
        lambda context: context.options.memory_compression_level > 0 and not context.looped,
    ),
)
"""The passes in their order (Kaldi's Optimize, nnet-optimize.cc)."""


_ANALYSIS_BEGINS = next(i for i, step in enumerate(PASSES) if step.name == "convert-addition")
_ROWS_MATTER = next(i for i, step in enumerate(PASSES) if step.name == "merge-variables")
_ROWS_MATTER_AGAIN = next(i for i, step in enumerate(PASSES) if step.name == "memory-compression")


def optimize(
    computation: Computation,
    context: PassContext,
    *,
    check: bool = False,
    rewrites: Rewrites | None = None,
    after_pass: AfterPass | None = None,
) -> Computation:
    """The optimized program. With `check` (and at verbose 3) it is checked between all passes.

    At verbose 2, time, commands and peak bytes before and after each pass are logged. `rewrites`
    caches what passes did to programs that differ in numbers of rows only. `after_pass` is called
    after each pass that the options want.
    """
    check = check or log.get_verbose() >= 3
    if check:
        check_computation(computation, context.nnet, check_rewrite=True, analyst=context.analyst)
    apply = partial(_apply, check=check, after_pass=after_pass)
    computation = apply(computation, context, PASSES[:_ANALYSIS_BEGINS])
    # Now, because later passes may write a matrix that was read before. The caller checks for all
    # other faults after the last pass.
    Checker(context.analyst.analyze(computation), context.nnet).check_rewrite()
    is_observed = after_pass is not None or log.get_verbose() >= 2
    if rewrites is None or check or context.looped or is_observed:
        return apply(computation, context, PASSES[_ANALYSIS_BEGINS:])
    computation = apply(computation, context, PASSES[_ANALYSIS_BEGINS:_ROWS_MATTER])
    alike = partial(apply, passes=PASSES[_ROWS_MATTER:_ROWS_MATTER_AGAIN])
    computation = rewrites.rewritten(computation, context, alike)
    return apply(computation, context, PASSES[_ROWS_MATTER_AGAIN:])


def apply_passes(
    computation: Computation,
    context: PassContext,
    names: Sequence[str],
    after_pass: AfterPass | None = None,
) -> Computation:
    """The program after the passes with these names, in this order, whatever the options want.

    The program is checked after each pass. DataError if a pass does not fit it.
    """
    of_name = {step.name: step for step in PASSES}
    for name in names:
        step = of_name[name]._replace(wanted=_always)
        try:
            computation = _apply(computation, context, [step], check=True, after_pass=after_pass)
        except (ProgramError, RequestError) as error:
            raise DataError(f"the pass {name} does not fit the program: {error}") from None
    return computation


def _apply(
    computation: Computation,
    context: PassContext,
    passes: Sequence[Pass],
    *,
    check: bool,
    after_pass: AfterPass | None = None,
) -> Computation:
    """The program after the passes that the options want; with `check`, each change is checked."""
    for step in passes:
        if step.wanted(context):
            before, began = computation, time.perf_counter()
            computation = step.transform(computation, context)
            elapsed = time.perf_counter() - began
            if check and not (
                before.commands == computation.commands
                and before.matrices == computation.matrices
                and before.submatrices == computation.submatrices
            ):
                _check(step.name, computation, context)
            if log.get_verbose() >= 2:
                _log_step(step.name, before, computation, elapsed)
            if after_pass is not None:
                after_pass(step.name, before, computation)
    return computation


def _check(name: str, computation: Computation, context: PassContext) -> None:
    try:
        check_computation(computation, context.nnet, analyst=context.analyst)
    except Exception as error:
        error.add_note(f"after the pass {name}")
        raise


def _log_step(name: str, before: Computation, after: Computation, seconds: float) -> None:
    log.vlog(2, f"{name}: {1000 * seconds:.1f} ms, {sizes_text(before, after)}")
