"""The leaky HMM's forward-backward on CUDA: a kernel for each direction."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools.tensor.aggregate import aggregate
from nnet3tools.tensor.arrays import scratch
from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.function_files import cuda_functions
from nnet3tools.tensor.cuda.indexes import sent
from nnet3tools.tensor.element import element
from nnet3tools.tensor.operators.leaky_hmm import LIMIT, Hmm
from nnet3tools.tensor.registry import implements

_MOST_THREADS = 1024
"""Of a block. There is one block for each sequence, so many threads must hide memory latency."""

_pseudo_probs = element(f"_1 = exp(clip(_2, {-LIMIT}, {LIMIT}))")

_functions = cuda_functions(__file__)
_column_sums = aggregate("_1", "sum", axis=0)


class _Plan:
    """The arcs of an HMM on the device, sorted by destination, by source and by pdf."""

    def __init__(self, hmm: Hmm) -> None:
        numbers, used = np.arange(hmm.num_states), np.unique(hmm.pdfs)
        self.initial = sent(hmm.initial, np.float32)
        self.forward = _sorted("", hmm, hmm.destinations, numbers, "sources", "pdfs")
        self.backward = {
            **_sorted("from_", hmm, hmm.sources, numbers, "destinations", "pdfs"),
            **_sorted("pdf_", hmm, hmm.pdfs, used, "sources", "destinations"),
            "used": sent(used),
        }
        self.num_used = len(used)


def _sorted(
    prefix: str, hmm: Hmm, keys: np.ndarray, values: np.ndarray, *columns: str
) -> dict[str, Array]:
    """Arrays of arcs sorted by `keys`: prefix + "offsets", "probs", and fields `columns` of `hmm`.

    `values` are the distinct keys. Arcs with key values[i] are offsets[i] to offsets[i + 1] - 1.
    """
    order = np.argsort(keys, kind="stable")
    offsets = np.append(np.searchsorted(keys[order], values), len(keys))
    found = {column: sent(getattr(hmm, column)[order]) for column in columns}
    found |= {"offsets": sent(offsets), "probs": sent(hmm.probs[order], np.float32)}
    return {prefix + name: array for name, array in found.items()}


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
    """The operator `leaky_hmm` on CUDA (arguments: see there); sums over states are float64."""
    plan: _Plan = hmm.plan("cupy", _Plan)
    num_frames, states = len(output) // num_sequences, hmm.num_states
    given: dict[str, Any] = {
        "states": states, "frames": num_frames, "leak": leak, "most_threads": _MOST_THREADS,
        "final_factor": 1.0 + leak * hmm.initial.sum(dtype=float), "initial": plan.initial,
    }  # fmt: skip
    with (
        scratch(output.shape, like=output) as x,
        scratch((num_frames + 1, num_sequences, states), like=output) as alpha,
        scratch((2, num_sequences, states), like=output) as beta,
        scratch((num_frames + 1, num_sequences), like=output, dtype=np.float64) as totals,
        scratch((num_sequences, 3), like=output, dtype=np.float64) as sums,
    ):
        _pseudo_probs(x, output)
        given |= {"x": x, "alpha": alpha, "totals": totals, "sums": sums}
        shape = (num_sequences,)
        _functions["leaky_hmm"].by_blocks(shape, states, **given, **plan.forward)()
        if deriv is not None:
            given |= {"beta": beta, "deriv": deriv, "groups": plan.num_used, "weight": weight}
            _functions["leaky_hmm_back"].by_blocks(shape, states, **given, **plan.backward)()
        count = 1 if deriv is None else 3
        _column_sums(results[:count], sums[:, :count])
