"""Random acceptors for LF-MMI's operators."""

import numpy as np

from nnet3tools.tensor.operators.leaky_hmm import Hmm
from nnet3tools.tensor.operators.numerator import FrameArcs, Paths

PDFS = 7


def random_hmm(rng, num_states=300, num_arcs=900):
    """More states than a block has threads."""
    ends = rng.integers(0, num_states, (2, num_arcs)).astype(np.int32)
    initial = rng.uniform(0.1, 1.0, num_states)
    return Hmm(
        *ends,
        rng.integers(0, PDFS - 1, num_arcs).astype(np.int32),  # the last pdf is not there
        rng.uniform(0.1, 0.9, num_arcs).astype(np.float32),
        (initial / initial.sum()).astype(np.float32),
    )


def random_paths(rng, num_frames=5, num_parts=3, same=False):
    """Acceptors side by side; with `same` the same arcs in each frame, as end-to-end ones have."""
    widths = [num_parts] + [num_parts * (70 if t == 1 or same else 4) for t in range(num_frames)]
    if same:
        widths[0] = widths[1]
    frames = []
    for t in range(num_frames):
        if same and frames:
            frames.append(frames[0])
            continue
        ends = [
            (a, b)
            for a in range(widths[t])
            for b in rng.integers(0, widths[t + 1] // num_parts, 3) * num_parts + a % num_parts
        ]
        sources, destinations = np.array(ends).T
        parts = sources % num_parts
        cells = parts * PDFS + rng.integers(0, PDFS, len(parts))
        costs = rng.uniform(0, 2, len(parts))
        frames.append(FrameArcs(sources, destinations, cells, costs, parts))
    first = np.cumsum([0, *widths])
    finals = np.arange(first[-2], first[-1])
    return Paths(
        frames,
        first,
        np.arange(num_frames) * num_parts * PDFS,
        np.arange(num_parts),
        finals,
        rng.uniform(0, 1, len(finals)),
        (finals - first[-2]) % num_parts,
    )
