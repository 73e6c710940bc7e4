"""Counts merged and discarded examples and logs them as Kaldi does."""

from collections import Counter

from nnet3tools.io import log
from nnet3tools.training.std_order import HashOrder


class MergingStats:
    """Counts of minibatches written and examples discarded, by size and structure."""

    def __init__(self) -> None:
        self._written: dict[tuple[int, int], Counter[int]] = {}
        self._discarded: Counter[tuple[int, int]] = Counter()

    def wrote(self, size: int, hash_value: int, minibatch_size: int) -> None:
        """Count a minibatch of `minibatch_size` examples with this size and structure hash each."""
        self._written.setdefault((size, hash_value), Counter())[minibatch_size] += 1

    def discarded(self, size: int, hash_value: int, count: int) -> None:
        """Count `count` examples, of this size and structure hash, that no rule allows to merge."""
        if count:
            self._written.setdefault((size, hash_value), Counter())
            self._discarded[size, hash_value] += count

    def print(self) -> None:
        """Log the summaries of written minibatches and of discarded examples."""
        self._print_specific()
        self._print_aggregate()

    def _print_specific(self) -> None:
        log.log(
            "Merged specific eg types as follows [format: <eg-size1>={<mb-size1>-><num-minibatches1"
            ">,<mbsize2>-><num-minibatches2>.../d=<num-discarded>},<egs-size2>={...},... (note,egs-"
            "size == number of input frames including context)."
        )
        log.log(",".join(self._describe(kind) for kind in sorted(self._written)))

    def _print_aggregate(self) -> None:
        written = [
            (size, minibatch_size, count)
            for (size, _), counts in self._written.items()
            for minibatch_size, count in counts.items()
        ]
        num_minibatches = sum(count for _, _, count in written)
        kept = sum(m * count for _, m, count in written)
        kept_size = sum(size * m * count for size, m, count in written)
        lost = self._discarded.total()
        lost_size = sum(size * count for (size, _), count in self._discarded.items())
        total = kept + lost
        nan = float("nan")
        log.log(
            f"Processed {total} egs of avg. size "
            f"{(kept_size + lost_size) / total if total else nan:.4g} into {num_minibatches} "
            f"minibatches, discarding {100.0 * lost / total if total else nan:.4g}% of egs.  Avg "
            f"minibatch size was {kept / num_minibatches if num_minibatches else nan:.4g}, "
            f"#distinct types of egs/minibatches was {len(self._written)}/{len(written)}"
        )

    def _describe(self, kind: tuple[int, int]) -> str:
        order = HashOrder()
        for minibatch_size in self._written[kind]:
            order.insert(minibatch_size, minibatch_size)
        counts = ",".join(f"{m}->{self._written[kind][m]}" for m in order)  # type: ignore[index]
        return f"{kind[0]}={{{counts},d={self._discarded[kind]}}}"
