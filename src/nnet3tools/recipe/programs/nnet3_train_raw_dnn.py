"""nnet3-train-raw-dnn: the whole training of a feed-forward network (no transition model)."""

from nnet3tools.recipe.options import RawDnnOptions
from nnet3tools.recipe.programs.training_program import frame_training

main = frame_training(
    "nnet3-train-raw-dnn",
    "feed-forward network (no transition model)",
    "--targets-scp=targets.scp",
    RawDnnOptions,
)
