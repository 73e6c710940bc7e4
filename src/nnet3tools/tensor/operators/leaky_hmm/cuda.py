"""The leaky HMM's forward-backward on CUDA: one kernel each way, a block of threads a sequence.

A block goes through all frames, so that there is no launch a frame. A thread owns states, and pdfs
for the posteriors; arcs are stored sorted by what is summed for, so that sums need no atomics and
come out the same at each run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools.tensor.aggregate import aggregate
from nnet3tools.tensor.arrays import scratch
from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.indexes import sent
from nnet3tools.tensor.cuda.strided import block_step
from nnet3tools.tensor.element import element
from nnet3tools.tensor.operators.leaky_hmm import LIMIT, Hmm
from nnet3tools.tensor.registry import implements

_MOST_THREADS = 1024
"""There are no more blocks than sequences: only threads can hide that memory is far away."""

_pseudo_probs = element(f"_1 = exp(clip(_2, {-LIMIT}, {LIMIT}))")

_FORWARD = """
    __shared__ nn_Sum<double> part[33];
    double log_prob = 0.0;
    for (int i = threadIdx.x; i < states; i += blockDim.x) alpha[[0, n, i]] = initial[[i]];
    for (long long t = 0;; ++t) {
      nn_Sum<double> acc; acc.init();
      for (int i = threadIdx.x; i < states; i += blockDim.x) acc.add(alpha[[t, n, i]]);
      const double total = nn_block(acc, part).a;
      if (threadIdx.x == 0) totals[[t, n]] = total;
      if (t == frames) {
        if (threadIdx.x == 0) sums[[n, 0]] = log_prob + log(total * final_factor);
        break;
      }
      log_prob += log(total);
      for (int i = threadIdx.x; i < states; i += blockDim.x)
        alpha[[t, n, i]] = T(alpha[[t, n, i]] / total + leak * initial[[i]]);
      __syncthreads();
      for (int j = threadIdx.x; j < states; j += blockDim.x) {
        T sum = 0;
        for (int k = offsets[[j]]; k < offsets[[j + 1]]; ++k)
          sum += probs[[k]] * x[[t * n_n + n, pdfs[[k]]]] * alpha[[t, n, sources[[k]]]];
        alpha[[t + 1, n, j]] = sum;
      }
    }"""

_BACKWARD = """
    __shared__ nn_Sum<double> part[33];
    const double last = 1.0 / (totals[[frames, n]] * final_factor);
    nn_Sum<double> posteriors; posteriors.init();
    for (int i = threadIdx.x; i < states; i += blockDim.x) beta[[frames % 2, n, i]] = T(last);
    for (long long t = frames - 1; t >= 0; --t) {
      const long long now = t % 2, after = (t + 1) % 2, row = t * n_n + n;
      nn_Sum<double> acc; acc.init();
      for (int i = threadIdx.x; i < states; i += blockDim.x)
        acc.add(initial[[i]] * beta[[after, n, i]]);
      const T leaked = T(leak * nn_block(acc, part).a);
      for (int i = threadIdx.x; i < states; i += blockDim.x) beta[[after, n, i]] += leaked;
      __syncthreads();
      for (int i = threadIdx.x; i < states; i += blockDim.x) {
        T sum = 0;
        for (int k = from_offsets[[i]]; k < from_offsets[[i + 1]]; ++k)
          sum += from_probs[[k]] * x[[row, from_pdfs[[k]]]] * beta[[after, n, destinations[[k]]]];
        beta[[now, n, i]] = T(sum / totals[[t, n]]);
      }
      for (int g = threadIdx.x; g < groups; g += blockDim.x) {
        const int pdf = used[[g]];
        T sum = 0;
        for (int k = pdf_offsets[[g]]; k < pdf_offsets[[g + 1]]; ++k)
          sum += pdf_probs[[k]] * alpha[[t, n, pdf_sources[[k]]]]
               * beta[[after, n, pdf_destinations[[k]]]];
        sum *= x[[row, pdf]];
        deriv[[row, pdf]] += weight * sum;
        if (t == 0) posteriors.add(sum);
      }
    }
    nn_Sum<double> both; both.init();
    for (int i = threadIdx.x; i < states; i += blockDim.x)
      both.add((double)alpha[[0, n, i]] * totals[[0, n]] * beta[[0, n, i]]);
    both = nn_block(both, part);
    posteriors = nn_block(posteriors, part);
    if (threadIdx.x == 0) { sums[[n, 1]] = both.a; sums[[n, 2]] = posteriors.a; }"""

_column_sums = aggregate("_1", "sum", axis=0)


class _Plan:
    """The arcs on the device, sorted by destination, by source and by pdf."""

    def __init__(self, hmm: Hmm) -> None:
        numbers = np.arange(hmm.num_states)
        self.initial = sent(hmm.initial, np.float32)
        order, offsets = _sorted(hmm.destinations, numbers)
        self.forward = {
            "offsets": sent(offsets),
            "sources": sent(hmm.sources[order]),
            "pdfs": sent(hmm.pdfs[order]),
            "probs": sent(hmm.probs[order], np.float32),
        }
        order, offsets = _sorted(hmm.sources, numbers)
        self.backward = {
            "from_offsets": sent(offsets),
            "destinations": sent(hmm.destinations[order]),
            "from_pdfs": sent(hmm.pdfs[order]),
            "from_probs": sent(hmm.probs[order], np.float32),
        }
        used = np.unique(hmm.pdfs)
        order, offsets = _sorted(hmm.pdfs, used)
        self.backward |= {
            "used": sent(used),
            "pdf_offsets": sent(offsets),
            "pdf_sources": sent(hmm.sources[order]),
            "pdf_destinations": sent(hmm.destinations[order]),
            "pdf_probs": sent(hmm.probs[order], np.float32),
        }
        self.num_used = len(used)


def _sorted(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order of arcs by key, and where those of each of the (sorted) values begin, and end."""
    order = np.argsort(keys, kind="stable")
    return order, np.append(np.searchsorted(keys[order], values), len(keys))


@implements("leaky_hmm", "cupy")
def leaky_hmm(
    results: Array,
    output: Array,
    hmm: Hmm,
    num_sequences: int,
    leak: float,
    deriv: Array | None = None,
    weight: float = 1.0,
) -> None:
    """Sums over states in float64, over a state's arcs in the type of `output`."""
    plan: _Plan = hmm.plan("cupy", _Plan)
    num_frames, states = len(output) // num_sequences, hmm.num_states
    numbers: dict[str, Any] = {
        "most_threads": _MOST_THREADS,
        "states": np.int32(states),
        "frames": np.int64(num_frames),
        "leak": np.float64(leak),
        "final_factor": np.float64(1.0 + leak * hmm.initial.sum(dtype=float)),
    }
    space = {"n": num_sequences}
    with (
        scratch(output.shape, like=output) as x,
        scratch((num_frames + 1, num_sequences, states), like=output) as alpha,
        scratch((2, num_sequences, states), like=output) as beta,
        scratch((num_frames + 1, num_sequences), like=output, dtype=np.float64) as totals,
        scratch((num_sequences, 3), like=output, dtype=np.float64) as sums,
    ):
        _pseudo_probs(x, output)
        arrays = {"x": x, "alpha": alpha, "totals": totals, "sums": sums, "initial": plan.initial}
        forward = {**arrays, **plan.forward}
        block_step("leaky_hmm", space, states, forward, _FORWARD, **numbers)()
        if deriv is not None:
            numbers |= {"groups": np.int32(plan.num_used), "weight": output.dtype.type(weight)}
            backward = {**arrays, "beta": beta, "deriv": deriv, **plan.backward}
            block_step("leaky_hmm_back", space, states, backward, _BACKWARD, **numbers)()
        count = 1 if deriv is None else 3
        _column_sums(results[:count], sums[:, :count])
