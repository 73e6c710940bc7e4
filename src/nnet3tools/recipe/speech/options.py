"""Options of nnet3-train-recognizer."""

from __future__ import annotations

from nnet3tools.cli.options import OptionGroup, option, option_group
from nnet3tools.options import option_fields
from nnet3tools.recipe.options import CheckOptions, JobOptions

RUN_NAMES = tuple(field.name.replace("_", "-") for field in option_fields(JobOptions))
"""The names of options that change no result; a second call may give other values."""


class RecognizerTrainingOptions(OptionGroup):
    """Options of nnet3-train-recognizer."""

    run: JobOptions = option_group("", JobOptions)
    size: str = option(
        "auto", "Row of the table of sizes: tiny, small, medium, large, huge; auto: by the data"
    )
    arpa: str = option(
        "", "Language model in ARPA form, perhaps .gz (default: estimated from transcripts)"
    )
    extra_text: str = option("", "File of sentences for the language model, beside transcripts")
    lm_order: int = option(3, "Order of the language model that is estimated, 1 to 4")
    held_out_share: float = option(
        0.1, "Share of the sound, of whole speakers, that is kept out of training to choose scales"
    )
    test: str = option("", "Data that is decoded at the end; its word errors go into the report")
    check: CheckOptions = option_group("", CheckOptions)
    seed: int = option(0, "Seed of the networks' first values and of the order of examples")
