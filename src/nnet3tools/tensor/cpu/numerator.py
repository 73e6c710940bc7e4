"""The numerator's forward-backward as C, in float64: frame by frame, arcs in the order given.

A log-sum is done for all states of a frame together: the largest term of each, exp of all terms
less that, which is one loop of vectors over arcs, their sums, and one log a state. The posteriors
take no further exp but one a state: an arc's is its part of the state's sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools.tensor.cpu.kernels import Job, Kernel, Number
from nnet3tools.tensor.numerator import FrameArcs, Paths

__all__ = ["KERNELS", "numerator"]

# exp of terms that are not above 0, by 2^k times Taylor's polynomial of |r| <= log(2) / 2: its
# twelfth degree leaves 2e-16
_EXP = """\
      #pragma omp simd
      for (i64 k = 0; k < arcs; ++k) {
        const f64 v = terms[k], c = v < -708.0 ? -708.0 : v;
        const f64 sum = c * 1.4426950408889634 + 6755399441055744.0;
        const f64 n = sum - 6755399441055744.0;
        const f64 r = c - n * 0.693147180369123816490 - n * 1.90821492927058770002e-10;
        f64 q = 1.0 / 479001600;
        q = q * r + 1.0 / 39916800; q = q * r + 1.0 / 3628800; q = q * r + 1.0 / 362880;
        q = q * r + 1.0 / 40320; q = q * r + 1.0 / 5040; q = q * r + 1.0 / 720;
        q = q * r + 1.0 / 120; q = q * r + 1.0 / 24; q = q * r + 1.0 / 6;
        q = q * r + 0.5; q = q * r + 1.0; q = q * r + 1.0;
        i64 bits;
        f64 power;
        memcpy(&bits, &sum, 8);
        bits = (bits + 1023) << 52;
        memcpy(&power, &bits, 8);
        terms[k] = v < -708.0 ? 0.0 : q * power;
      }
"""
_FRAME = """\
      const i64 from = offsets[which[t]], arcs = offsets[which[t] + 1] - from;
      const s32 *const source = sources + from, *const destination = destinations + from;
      const s32 *const cell = cells + from; const f64 *const cost = costs + from;
      const f32 *const value = output + first_cells[t];
      const i64 before = first_states[t + 1] - first_states[t];
      const i64 behind = first_states[t + 2] - first_states[t + 1];
      f64 *const now = alpha + first_states[t], *const after = alpha + first_states[t + 1];
"""
_LARGEST = """\
      for (i64 s = 0; s < {states}; ++s) {{ {most}[s] = -INFINITY; sums[s] = 0.0; }}
      for (i64 k = 0; k < arcs; ++k) {{
        const f64 v = ((f64)value[cell[k]] - cost[k]) + {other};
        terms[k] = v;
        if (v > {most}[{end}[k]]) {most}[{end}[k]] = v;
      }}
      for (i64 s = 0; s < {states}; ++s) if ({most}[s] == -INFINITY) {most}[s] = 0.0;
      for (i64 k = 0; k < arcs; ++k) terms[k] -= {most}[{end}[k]];
"""
_BODY = (
    """\
  f64 *const results = w[0].p; const f32 *const output = w[1].p; f32 *const deriv = w[2].p;
  const i64 frames = w[3].i, parts = w[4].i, ends = w[5].i; const f64 weight = w[6].f;
  const i64 *const which = w[7].p, *const offsets = w[8].p;
  const i64 *const first_states = w[9].p, *const first_cells = w[10].p;
  const s32 *const sources = w[11].p, *const destinations = w[12].p, *const cells = w[13].p;
  const f64 *const costs = w[14].p; const i64 *const starts = w[15].p, *const finals = w[16].p;
  const f64 *const final_costs = w[17].p; const i64 *const final_parts = w[18].p;
  f64 *const alpha = w[19].p, *const terms = w[20].p, *const sums = w[21].p;
  f64 *const totals = w[22].p, *const beta = w[23].p; const i64 most_states = w[24].i;
  f64 *const factors = w[25].p;
  for (i64 s = 0; s < first_states[1]; ++s) alpha[s] = -INFINITY;
  for (i64 p = 0; p < parts; ++p) alpha[starts[p]] = 0.0;
  for (i64 t = 0; t < frames; ++t) {
"""
    + _FRAME
    + _LARGEST.format(states="behind", most="after", other="now[source[k]]", end="destination")
    + _EXP
    + """\
      for (i64 k = 0; k < arcs; ++k) sums[destination[k]] += terms[k];
      for (i64 s = 0; s < behind; ++s) after[s] += log(sums[s]);
  }
  for (i64 p = 0; p < parts; ++p) { totals[p] = -INFINITY; sums[p] = 0.0; }
  for (i64 f = 0; f < ends; ++f) {
    const f64 v = alpha[finals[f]] - final_costs[f];
    if (v > totals[final_parts[f]]) totals[final_parts[f]] = v;
  }
  for (i64 p = 0; p < parts; ++p) if (totals[p] == -INFINITY) totals[p] = 0.0;
  for (i64 f = 0; f < ends; ++f) {
    const i64 p = final_parts[f];
    sums[p] += exp(alpha[finals[f]] - final_costs[f] - totals[p]);
  }
  f64 total = 0.0;
  for (i64 p = 0; p < parts; ++p) total += totals[p] += log(sums[p]);
  results[0] = total;
  if (deriv) {
    const i64 last = first_states[frames];
    f64 *const ending = beta + (frames & 1) * most_states - last;
    for (i64 s = last; s < first_states[frames + 1]; ++s) ending[s] = -INFINITY;
    for (i64 f = 0; f < ends; ++f) ending[finals[f]] = -final_costs[f] - totals[final_parts[f]];
    for (i64 t = frames - 1; t >= 0; --t) {
      f64 *const back = beta + (t & 1) * most_states, *const next = beta + (~t & 1) * most_states;
      f32 *const found = deriv + first_cells[t];
"""
    + _FRAME
    + _LARGEST.format(states="before", most="back", other="next[destination[k]]", end="source")
    + _EXP
    + """\
      for (i64 k = 0; k < arcs; ++k) sums[source[k]] += terms[k];
      for (i64 s = 0; s < before; ++s) {
        factors[s] = sums[s] == 0.0 ? 0.0 : weight * exp(now[s] + back[s]);
        back[s] += log(sums[s]);
      }
      for (i64 k = 0; k < arcs; ++k) found[cell[k]] += terms[k] * factors[source[k]];
    }
  }
"""
)
_FORWARD_BACKWARD = Kernel(_BODY)
KERNELS = (_FORWARD_BACKWARD,)
"""All that there are."""


def _columns(frames: list[FrameArcs]) -> list[np.ndarray] | None:
    """Sources, destinations, cells, costs of all arcs; None for what int32 does not hold."""
    found = [
        np.concatenate([getattr(frame, name) for frame in frames])
        for name in ("sources", "destinations", "cells")
    ]
    if any(column.size and column.max() >= 1 << 31 for column in found):
        return None
    narrow = [np.ascontiguousarray(column, np.int32) for column in found]
    return [*narrow, np.concatenate([frame.costs for frame in frames], dtype=np.float64)]


def numerator(
    results: Any, output: Any, paths: Paths, deriv: Any = None, weight: float = 1.0
) -> list[Job] | None:
    """Of contiguous float32."""
    matrices = (output,) if deriv is None else (output, deriv)
    contiguous = all(m.dtype == np.float32 and m.flags.c_contiguous for m in matrices)
    if not contiguous or not output.size or not paths.frames:
        return None
    if any(m.shape != output.shape for m in matrices):
        return None  # NumPy says what is wrong
    distinct = list({id(frame): frame for frame in paths.frames}.values())
    number = {id(frame): i for i, frame in enumerate(distinct)}
    if (columns := _columns(distinct)) is None:
        return None
    which = np.array([number[id(frame)] for frame in paths.frames], np.int64)
    counts = np.array([len(frame.sources) for frame in distinct], np.int64)
    states, cells, starts, finals, final_parts = (
        np.ascontiguousarray(a, np.int64)
        for a in (paths.first_states, paths.first_cells, paths.starts, paths.finals,
                  paths.final_parts)
    )  # fmt: skip
    most, num_parts = int(np.diff(states).max()), paths.num_parts
    doubles = [int(states[-1]), int(counts.max()), max(most, num_parts), num_parts, 2 * most]
    alpha, terms, sums, totals, beta = (np.empty(size) for size in doubles)
    work = [
        results, output, 0 if deriv is None else deriv, len(paths.frames), num_parts, len(finals),
        Number(weight), which, np.concatenate([[0], counts.cumsum()]), states, cells, *columns,
        starts, finals, np.ascontiguousarray(paths.final_costs, np.float64), final_parts,
        alpha, terms, sums, totals, beta, most, np.empty(most),
    ]  # fmt: skip
    return [Job(_FORWARD_BACKWARD, work, 1, int(counts[which].sum()))]
