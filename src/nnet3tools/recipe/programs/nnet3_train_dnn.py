"""nnet3-train-dnn: the whole training of a feed-forward acoustic model."""

from nnet3tools.recipe.options import AmDnnOptions
from nnet3tools.recipe.programs.training_program import frame_training

main = frame_training(
    "nnet3-train-dnn", "feed-forward acoustic model", "--ali-dir=exp/ali", AmDnnOptions
)
