"""Options of chain-get-supervision that concern supervisions."""

from __future__ import annotations

from dataclasses import dataclass

from nnet3tools.errors import OptionError
from nnet3tools.options import option


@dataclass(frozen=True)
class SupervisionOptions:
    """Options of converting phone alignments and lattices to supervisions."""

    left_tolerance: int = option(
        5, "Left tolerance for shift in phone position relative to the alignment"
    )
    right_tolerance: int = option(
        5, "Right tolerance for shift in phone position relative to the alignment"
    )
    frame_subsampling_factor: int = option(
        1,
        "Used if the frame-rate for the chain model will be less than the frame-rate of the "
        "original alignment.  Applied after left-tolerance and right-tolerance are applied (so "
        "they are in terms of the original num-frames.",
    )
    weight: float = option(
        1.0, "Ignored, as in Kaldi, where supervisions always get the weight 1 at first"
    )
    lm_scale: float = option(
        0.0,
        "The scale with which the graph/lm weights from the phone lattice are included in the "
        "supervision fst.",
    )
    convert_to_pdfs: bool = option(
        True, "If true, convert transition-ids to pdf-ids + 1 in supervision FSTs."
    )

    def check(self) -> None:
        """OptionError if an option's value is out of its range."""
        factor, left, right = (
            self.frame_subsampling_factor,
            self.left_tolerance,
            self.right_tolerance,
        )
        if factor < 1:
            raise OptionError(f"invalid --frame-subsampling-factor={factor}: must be >= 1")
        if left < 0 or right < 0:
            raise OptionError(f"a tolerance of {min(left, right)} frames is negative")
        if left + right + 1 < factor:
            raise OptionError(
                f"--left-tolerance={left} and --right-tolerance={right} are too small for "
                f"--frame-subsampling-factor={factor}: a phone might get no frame"
            )
        if not 0.0 <= self.lm_scale < 1.0:
            raise OptionError(f"invalid --lm-scale={self.lm_scale:g}: must be >= 0 and < 1")
