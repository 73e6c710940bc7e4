"""The leaky HMM's forward-backward on the CPU: what its C kernel is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools.tensor.arrays import aligned_bytes
from nnet3tools.tensor.cpu.kernels import Job, has_rows, kernels_of_file, makes_jobs
from nnet3tools.tensor.cpu.library import library
from nnet3tools.tensor.operators.leaky_hmm import Hmm
from nnet3tools.tensor.operators.numerator.cpu import KERNELS as NUMERATOR_KERNELS
from nnet3tools.tensor.plain.threads import num_threads

_LANES = 16
_LINE = 64

_kernels = kernels_of_file(__file__)


class _Plan:
    """The arcs of an HMM as the C kernel takes them: `arrays` by name of the kernel's argument.

    Arcs with the same destination and pdf are one of `num_groups` groups. Pdfs are less than
    `num_pdfs`. `initial_sum` is the sum of the initial probabilities.
    """

    def __init__(self, hmm: Hmm) -> None:
        order = np.lexsort((hmm.pdfs, hmm.destinations))
        destinations, pdfs = hmm.destinations[order], hmm.pdfs[order]
        new = np.diff(destinations, prepend=-1) | np.diff(pdfs, prepend=-1)
        first = np.flatnonzero(new)
        group = np.empty(len(order), np.int32)
        group[order] = np.cumsum(new != 0) - 1
        states = np.arange(hmm.num_states + 1)
        back = np.argsort(hmm.sources, kind="stable")
        found = {
            "state_groups": np.searchsorted(destinations[first], states),
            "group_pdfs": pdfs[first],
            "group_states": destinations[first],
            "group_arcs": np.append(first, len(order)),
            "sources": hmm.sources[order],
            "probs": hmm.probs[order],
            "state_arcs": np.searchsorted(hmm.sources[back], states),
            "arc_groups": group[back],
            "arc_pdfs": hmm.pdfs[back],
            "back_probs": hmm.probs[back],
            "initial": hmm.initial,
        }
        self.arrays = {
            name: np.ascontiguousarray(a, np.float32 if a.dtype.kind == "f" else np.int32)
            for name, a in found.items()
        }
        self.num_groups, self.num_pdfs = len(first), int(hmm.pdfs.max(initial=-1)) + 1
        self.initial_sum = float(hmm.initial.sum(dtype=float))


@makes_jobs("leaky_hmm")
def _leaky_hmm(
    results: Any, output: Any, hmm: Hmm, num_sequences: int, leak: float,
    deriv: Any = None, weight: float = 1.0,
) -> list[Job] | None:  # fmt: skip
    """A list with the job (C kernel call) for `leaky_hmm`; None unless float32, contiguous rows."""
    matrices = (output,) if deriv is None else (output, deriv)
    if not all(map(has_rows, matrices)) or not output.size or results.strides != (8,):
        return None
    plan: _Plan = hmm.plan("cpu", _Plan)
    if plan.num_pdfs > output.shape[1] or any(m.shape != output.shape for m in matrices):
        return None  # the reference raises the error
    num_frames, num_pdfs = len(output) // num_sequences, output.shape[1]
    num_blocks = -(-num_sequences // _LANES)
    steps = min(num_threads(), num_blocks)
    frames_kept = 0 if deriv is None else num_frames
    memory = _LINE * (2 * hmm.num_states + 2 * num_pdfs + plan.num_groups + num_frames)
    memory += 4 * (num_pdfs + frames_kept * hmm.num_states * min(num_sequences, _LANES))
    memory += 2 * _LINE  # for rounding up, and for the copies after the last row of alpha'
    memory = -(-memory // _LINE) * _LINE
    by_sequence = np.empty((num_sequences, 3))
    forward_backward = _kernels["leaky_hmm"].job(
        steps, num_frames * num_sequences * len(hmm.probs),
        results=by_sequence, output=output, deriv=deriv, output_stride=output.strides[0] // 4,
        deriv_stride=0 if deriv is None else deriv.strides[0] // 4, num_sequences=num_sequences,
        num_frames=num_frames, num_pdfs=num_pdfs, num_states=hmm.num_states,
        num_groups=plan.num_groups, blocks_per_step=-(-num_blocks // steps), num_blocks=num_blocks,
        **plan.arrays, leaks=plan.arrays["initial"] * np.float32(leak),
        memory=aligned_bytes(steps * memory, _LINE), memory_stride=memory,
        leak=leak, final_factor=1.0 + leak * plan.initial_sum, weight=weight,
    )  # fmt: skip
    library.want(NUMERATOR_KERNELS)  # LF-MMI's next call: one run of the compiler makes both
    totals = _kernels["leaky_hmm_totals"].job(
        3, 1, results=results, sequences=by_sequence, num_sequences=num_sequences
    )
    return [forward_backward, totals]
