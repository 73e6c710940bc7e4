"""nnet3-train-raw-rnn: the whole training of a recurrent network (no transition model)."""

from nnet3tools.recipe.options import RawRnnOptions
from nnet3tools.recipe.programs.training_program import frame_training

main = frame_training(
    "nnet3-train-raw-rnn",
    "recurrent network (no transition model)",
    "--targets-scp=targets.scp",
    RawRnnOptions,
)
