#!/usr/bin/env bash
# Handwritten digits of 8 x 8 pixels (UCI's test set of optical recognition, as scikit-learn carries it): a
# convolutional network of 46,000 parameters, trained on shifted and turned images.
#
# usage: egs/digit_images/run.sh [--stage N] [--num-epochs N] [--srand N] [--dir DIR]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

stage=0
num_epochs=24
initial_lrate=0.003
final_lrate=0.0003
minibatch_size=32
augmentation="--horizontal-shift=0.1 --vertical-shift=0.1 --rotation-degree=10 --rotation-prob=0.5 --num-channels=1"
srand=0
dir=exp/cnn

. ./path.sh
. ./cmd.sh
. utils/parse_options.sh

mkdir -p data "$dir/log" "$dir/configs"

if [ "$stage" -le 0 ]; then
  echo "$0: getting the data (PyPI package scikit-learn 1.7.2 ships it)"
  utils/from_wheel.sh scikit-learn==1.7.2 data/download sklearn/datasets/data/digits.csv.gz
fi

if [ "$stage" -le 1 ]; then
  echo "$0: writing images and labels as Kaldi tables"
  python local/prepare_data.py data/download/digits.csv.gz data
fi

if [ "$stage" -le 2 ]; then
  echo "$0: creating the network and the examples"
  cp conf/network.xconfig "$dir/configs/"
  $train_cmd "$dir/log/xconfig.log" nnet3-xconfig-to-configs --xconfig-file="$dir/configs/network.xconfig" \
    --config-dir="$dir/configs"
  for part in train valid test; do
    $train_cmd "$dir/log/get_egs.$part.log" nnet3-get-egs-simple input=ark:data/$part/images.ark \
      output=ark:data/$part/labels.ark "ark:data/$part/images.egs"
  done
  utils/egs_info.sh "$dir/egs" feat_dim=8 left_context=0 right_context=7 num_frames=1258
  cp data/train/images.egs "$dir/egs/egs.1.ark"
  cp data/train/images.egs "$dir/egs/combine.egs"
  cp data/train/images.egs "$dir/egs/train_diagnostic.egs"
  cp data/valid/images.egs "$dir/egs/valid_diagnostic.egs"
fi

if [ "$stage" -le 3 ]; then
  echo "$0: training for $num_epochs epochs, learning rate from $initial_lrate to $final_lrate"
  nnet3-train-raw-dnn --use-gpu=no --cleanup.remove-egs=false --dir="$dir" \
    --egs.dir="$dir/egs" --egs.frames-per-eg=1 --image.augmentation-opts="$augmentation" \
    --trainer.srand="$srand" --trainer.num-epochs="$num_epochs" \
    --trainer.optimization.minibatch-size="$minibatch_size" \
    --trainer.optimization.num-jobs-initial=1 --trainer.optimization.num-jobs-final=1 \
    --trainer.optimization.initial-effective-lrate="$initial_lrate" \
    --trainer.optimization.final-effective-lrate="$final_lrate"
fi

if [ "$stage" -le 4 ]; then
  echo "$0: computing log-posteriors of the test set"
  $train_cmd "$dir/log/compute.log" nnet3-compute-from-egs --use-gpu=no \
    "nnet3-copy --prepare-for-test=true $dir/final.raw - |" ark:data/test/images.egs "ark:$dir/output.ark"
fi

python utils/score.py digit_images "$dir/output.ark" data/test/labels "$dir/confusions.png"
