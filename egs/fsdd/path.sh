# As in every recipe; features of sound and pictures need the extra "recipe".
NNET3TOOLS_EXTRA=recipe
. utils/path.sh
