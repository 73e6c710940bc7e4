"""The leaky HMM's forward-backward as C: all frames of sixteen sequences, then of the next ones.

A number of each of the sixteen is one vector, so that an arc is a broadcast, a load, a product and
a sum. Where there are fewer sequences, the last one fills the vector: that takes no longer, and
only alpha', which is kept of all frames, is stored without the copies. What the sixteen need of one
frame stays in the second cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nnet3tools.tensor.arrays import aligned_bytes
from nnet3tools.tensor.cpu.kernels import Job, Kernel, Number
from nnet3tools.tensor.leaky_hmm import ALPHA_BETA, LIMIT, LOG_PROB, POSTERIOR_SUM, Hmm
from nnet3tools.tensor.plain.threads import num_threads

__all__ = ["KERNELS", "leaky_hmm"]

_LANES = 16
_LINE = 64

_SUMS = """\
  /* sixteen sums over states in {name}: of {term}, by 64 in float32 */
  for (i64 l = 0; l < 16; ++l) {name}[l] = 0.0;
  for (i64 i0 = 0; i0 < states; i0 += 64) {{
    vec part = {{0}};
    for (i64 i = i0; i < NN_LEAST(i0 + 64, states); ++i) part += {term};
    for (i64 l = 0; l < 16; ++l) {name}[l] += part[l];
  }}
"""
_LOAD = """\
    /* x = exp of the outputs of frame t, pdf by pdf */
    for (i64 l = 0; l < 16; ++l) {
      const f32 *const row = output + (t * sequences + first + NN_LEAST(l, count - 1)) * down;
      #pragma omp simd
      for (i64 p = 0; p < pdfs; ++p) line[p] = nn_expf(nn_minf(nn_maxf(row[p], -LIMIT), LIMIT));
      for (i64 p = 0; p < pdfs; ++p) ((f32 *)(x + p))[l] = line[p];
    }
"""
_SUM_OF = {
    "alpha": _SUMS.format(name="sum", term="alpha[i]"),
    "beta": _SUMS.format(name="sum", term="ALL(leaks[i]) * beta[i]"),
}
_BODY = (
    """\
  typedef f32 vec __attribute__((vector_size(64)));
  typedef f32 packed __attribute__((vector_size(64), aligned(4)));
  #define ALL(a) (vec){a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a}
  f64 *const results = w[0].p; const f32 *const output = w[1].p; f32 *const deriv = w[2].p;
  const i64 down = w[3].i, deriv_down = w[4].i, sequences = w[5].i, frames = w[6].i;
  const i64 pdfs = w[7].i, states = w[8].i, groups = w[9].i, blocks = w[10].i, room = w[11].i;
  const s32 *const state_groups = w[12].p, *const group_pdfs = w[13].p;
  const s32 *const group_states = w[14].p, *const group_arcs = w[15].p;
  const s32 *const sources = w[16].p; const f32 *const probs = w[17].p;
  const s32 *const state_arcs = w[18].p, *const arc_groups = w[19].p, *const arc_pdfs = w[20].p;
  const f32 *const back_probs = w[21].p, *const initial = w[22].p, *const leaks = w[23].p;
  const f64 leak = w[25].f, leaving = w[26].f; const f32 weight = (f32)w[27].f;
  for (i64 step = begin; step < end; ++step)
  for (i64 block = step * blocks; block < NN_LEAST((step + 1) * blocks, w[28].i); ++block) {
    const i64 first = block * 16, count = NN_LEAST(16, sequences - first);
    vec *const alpha = (vec *)((u8 *)w[24].p + step * room), *const beta = alpha;
    vec *const now = alpha + states, *const x = now + states, *const found = x + pdfs;
    vec *const z = found + pdfs, *const totals = z + groups;
    f32 *const line = (f32 *)(totals + frames), *const kept = line + (pdfs + 15) / 16 * 16;
    f64 sum[16], logs[16], product[16], posteriors[16];
    for (i64 l = 0; l < 16; ++l) logs[l] = product[l] = posteriors[l] = 0.0;
    for (i64 i = 0; i < states; ++i) alpha[i] = ALL(initial[i]);
    for (i64 t = 0; t < frames; ++t) {
"""
    + _SUM_OF["alpha"]
    + """\
      vec total;
      for (i64 l = 0; l < 16; ++l) total[l] = (f32)sum[l];
      for (i64 l = 0; l < count; ++l) logs[l] += log((f64)total[l]);
      totals[t] = total;
      const vec part = ALL(1.0f) / total;
      f32 *const keep = kept + (deriv ? t * states * count : 0);
      for (i64 i = 0; i < states; ++i) {
        now[i] = alpha[i] * part + ALL(leaks[i]);
        /* what is too much is written over by the next ones */
        if (deriv) *(packed *)(keep + i * count) = now[i];
      }
"""
    + _LOAD
    + """\
      for (i64 i = 0; i < states; ++i) {
        vec all = {0};
        for (i64 g = state_groups[i]; g < state_groups[i + 1]; ++g) {
          vec some = {0};
          for (i64 k = group_arcs[g]; k < group_arcs[g + 1]; ++k)
            some += ALL(probs[k]) * now[sources[k]];
          all += some * x[group_pdfs[g]];
        }
        alpha[i] = all;
      }
    }
"""
    + _SUM_OF["alpha"]
    + """\
    vec last;
    for (i64 l = 0; l < 16; ++l) {
      const f64 final = (f64)(f32)sum[l] * leaving;
      logs[l] += log(final);
      last[l] = (f32)(1.0 / final);
    }
    if (deriv) {
      for (i64 i = 0; i < states; ++i) beta[i] = last;
      for (i64 t = frames - 1; t >= 0; --t) {
"""
    + _LOAD
    + _SUM_OF["beta"]
    + """\
        vec more;
        for (i64 l = 0; l < 16; ++l) more[l] = (f32)sum[l];
        for (i64 g = 0; g < groups; ++g) z[g] = x[group_pdfs[g]] * (beta[group_states[g]] + more);
        for (i64 p = 0; p < pdfs; ++p) found[p] = ALL(0.0f);
        const vec part = ALL(1.0f) / totals[t];
        const f32 *const keep = kept + t * states * count;
        for (i64 i = 0; i < states; ++i) {
          const vec before = *(const packed *)(keep + i * count);
          vec all = {0};
          for (i64 k = state_arcs[i]; k < state_arcs[i + 1]; ++k) {
            const vec through = ALL(back_probs[k]) * z[arc_groups[k]];
            all += through;
            found[arc_pdfs[k]] += through * before;
          }
          beta[i] = all * part;
        }
        for (i64 l = 0; l < count; ++l) {
          f32 *const row = deriv + (t * sequences + first + l) * deriv_down;
          for (i64 p = 0; p < pdfs; ++p) line[p] = ((const f32 *)(found + p))[l];
          #pragma omp simd
          for (i64 p = 0; p < pdfs; ++p) row[p] += weight * line[p];
          if (t == 0) for (i64 p = 0; p < pdfs; ++p) posteriors[l] += line[p];
        }
      }
      for (i64 i = 0; i < states; ++i)
        for (i64 l = 0; l < count; ++l)
          product[l] += (f64)initial[i] * (1.0 + leak * totals[0][l]) * beta[i][l];
    }
    for (i64 l = 0; l < count; ++l) {
      f64 *const own = results + (first + l) * 3;
      own[AT_LOG_PROB] = logs[l];
      own[AT_ALPHA_BETA] = product[l];
      own[AT_POSTERIORS] = posteriors[l];
    }
  }
  #undef ALL
"""
)
_PLACES = {
    "AT_LOG_PROB": LOG_PROB,
    "AT_ALPHA_BETA": ALPHA_BETA,
    "AT_POSTERIORS": POSTERIOR_SUM,
    "LIMIT": f"{LIMIT}f",
}


def _filled_in(text: str) -> str:
    for name, value in _PLACES.items():
        text = text.replace(name, str(value))
    return text


_FORWARD_BACKWARD = Kernel(_filled_in(_BODY))
_TOTALS = Kernel(
    """\
  f64 *const results = w[0].p; const f64 *const found = w[1].p;
  for (i64 k = begin; k < end; ++k) {
    f64 sum = 0.0;
    for (i64 n = 0; n < w[2].i; ++n) sum += found[3 * n + k];
    results[k] = sum;
  }
"""
)
KERNELS = (_FORWARD_BACKWARD, _TOTALS)
"""All that there are."""


@dataclass(frozen=True, eq=False)
class _Plan:
    """Arcs sorted by destination and pdf, which makes groups, and by source; prepared once."""

    arrays: tuple[np.ndarray, ...]
    """In the order in which the kernel takes them."""
    num_groups: int
    num_pdfs: int
    """At least: one more than the largest."""
    initial_sum: float

    @classmethod
    def of(cls, hmm: Hmm) -> _Plan:
        order = np.lexsort((hmm.pdfs, hmm.destinations))
        destinations, pdfs = hmm.destinations[order], hmm.pdfs[order]
        new = np.diff(destinations, prepend=-1) | np.diff(pdfs, prepend=-1)
        first = np.flatnonzero(new)
        group = np.empty(len(order), np.int32)
        group[order] = np.cumsum(new != 0) - 1
        states = np.arange(hmm.num_states + 1)
        back = np.argsort(hmm.sources, kind="stable")
        found = (
            np.searchsorted(destinations[first], states),
            pdfs[first],
            destinations[first],
            np.append(first, len(order)),
            hmm.sources[order],
            hmm.probs[order],
            np.searchsorted(hmm.sources[back], states),
            group[back],
            hmm.pdfs[back],
            hmm.probs[back],
        )
        arrays = tuple(
            np.ascontiguousarray(a, np.float32 if a.dtype.kind == "f" else np.int32) for a in found
        )
        num_pdfs = int(hmm.pdfs.max(initial=-1)) + 1
        return cls(arrays, len(first), num_pdfs, float(hmm.initial.sum(dtype=float)))


def leaky_hmm(
    results: Any, output: Any, hmm: Hmm, num_sequences: int, leak: float,
    deriv: Any = None, weight: float = 1.0,
) -> list[Job] | None:  # fmt: skip
    """Of float32 with contiguous rows; sums over states and frames are in float64."""
    matrices = (output,) if deriv is None else (output, deriv)
    contiguous = all(m.dtype == np.float32 and m.strides[1] == m.itemsize for m in matrices)
    if not contiguous or not output.size or results.strides != (8,):
        return None
    plan: _Plan = hmm.plan("native", _Plan.of)
    if plan.num_pdfs > output.shape[1] or any(m.shape != output.shape for m in matrices):
        return None  # NumPy says what is wrong
    num_frames, num_pdfs = len(output) // num_sequences, output.shape[1]
    num_blocks = -(-num_sequences // _LANES)
    steps = min(num_threads(), num_blocks)
    frames_kept = 0 if deriv is None else num_frames
    room = _LINE * (2 * hmm.num_states + 2 * num_pdfs + plan.num_groups + num_frames)
    room += 4 * (num_pdfs + frames_kept * hmm.num_states * min(num_sequences, _LANES))
    room += 2 * _LINE  # what is rounded up, what is too much of the last row kept
    room = -(-room // _LINE) * _LINE
    found = np.empty((num_sequences, 3))
    downs = [0 if m is None else m.strides[0] // m.itemsize for m in (output, deriv)]
    sizes = [num_sequences, num_frames, num_pdfs, hmm.num_states, plan.num_groups]
    initial = np.ascontiguousarray(hmm.initial, np.float32)
    work = [
        found, output, 0 if deriv is None else deriv, *downs, *sizes,
        -(-num_blocks // steps), room, *plan.arrays, initial, initial * np.float32(leak),
        aligned_bytes(steps * room, _LINE), Number(leak), Number(1.0 + leak * plan.initial_sum),
        Number(weight), num_blocks,
    ]  # fmt: skip
    elements = num_frames * num_sequences * len(hmm.probs)
    return [
        Job(_FORWARD_BACKWARD, work, steps, elements),
        Job(_TOTALS, [results, found, num_sequences], 3, 1),
    ]
