"""nnet3-train-rnn: the whole training of a recurrent acoustic model."""

from nnet3tools.recipe.options import AmRnnOptions
from nnet3tools.recipe.programs.training_program import frame_training

main = frame_training(
    "nnet3-train-rnn", "recurrent acoustic model", "--ali-dir=exp/ali", AmRnnOptions
)
