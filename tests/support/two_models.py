"""A monophone and a biphone model with one topology, and alignments of the first."""

import numpy as np

from nnet3tools.io.writer import Writer
from nnet3tools.lang.lang_dir import chain_topology
from nnet3tools.lang.trees import biphone_tree, monophone_tree
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.nnet.hmm.tree import ContextDependency

PHONES = [1, 2, 3]
SETS = [[phone] for phone in PHONES]
TOPOLOGY = chain_topology(PHONES)
OLD_TREE = monophone_tree(SETS, TOPOLOGY)
NEW_TREE = biphone_tree(SETS, TOPOLOGY)
OLD = TransitionModel.from_tree(OLD_TREE, TOPOLOGY)
NEW = TransitionModel.from_tree(NEW_TREE, TOPOLOGY)


def alignment(phones: list[int], lengths: list[int]) -> np.ndarray:
    """Transition ids of the old model: of each phone, the forward transition, then its loops."""
    t = OLD.transitions()
    ids = np.arange(OLD.num_transition_ids + 1)
    found: list[int] = []
    for phone, length in zip(phones, lengths, strict=True):
        of_phone = ids[t.phones == phone]
        (loop,) = of_phone[t.is_self_loop[of_phone]]
        (forward,) = of_phone[~t.is_self_loop[of_phone]]
        found += [int(forward), *[int(loop)] * (length - 1)]
    return np.array(found, np.int32)


def save(name: str, item: TransitionModel | ContextDependency) -> None:
    """Write a model or a tree to a file."""
    with open(name, "wb") as file:
        writer = Writer(file)
        writer.write_header()
        item.write(writer)
