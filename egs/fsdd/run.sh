#!/usr/bin/env bash
# Free Spoken Digit Dataset: which digit is said?  3,000 recordings of six speakers; recordings 0 to 4 of
# each digit and speaker (300) are the test.  A TDNN with a statistics layer, 148,000 parameters, sees a
# whole recording for every frame's decision; the recording goes to the digit with the highest summed
# log-posterior.
#
# usage: egs/fsdd/run.sh [--data RECORDINGS] [--stage N] [--num-epochs N] [--srand N] [--dir DIR]
# RECORDINGS holds files such as 7_jackson_32.wav; without --data the public repository is cloned.
set -euo pipefail
started_in=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")"

data=
stage=0
num_epochs=12
initial_lrate=0.002
final_lrate=0.0001
srand=0
dir=exp/tdnn
context=7

. ./path.sh
. ./cmd.sh
. utils/parse_options.sh

mkdir -p data "$dir/log" "$dir/configs"

if [ "$stage" -le 0 ]; then
  if [ -z "$data" ]; then
    echo "$0: getting the data (github.com/Jakobovski/free-spoken-digit-dataset)"
    local/get_data.sh data/download
  fi
  echo "$0: preparing data/train and data/test"
  case $data in '') data=data/download/recordings ;; /*) ;; *) data=$started_in/$data ;; esac
  python local/prepare_data.py "$data" data
fi

if [ "$stage" -le 1 ]; then
  echo "$0: computing features"
  jobs=()
  for part in train test; do
    $train_cmd "data/$part/log/mfcc.log" compute-mfcc-feats --config=conf/mfcc.conf \
      scp:data/$part/wav.scp "ark,scp:$PWD/data/$part/feats.ark,data/$part/feats.scp" &
    jobs+=($!)
  done
  for job in "${jobs[@]}"; do wait "$job"; done
  for part in train test; do
    $train_cmd "data/$part/log/cmvn.log" compute-cmvn-stats --spk2utt=ark:data/$part/spk2utt \
      scp:data/$part/feats.scp "ark,scp:$PWD/data/$part/cmvn.ark,data/$part/cmvn.scp"
    $train_cmd "data/$part/log/frames.log" feat-to-len scp:data/$part/feats.scp ark,t:data/$part/utt2num_frames
  done
fi

if [ "$stage" -le 2 ]; then
  echo "$0: creating the network, and targets: its digit for every frame of a recording"
  cp conf/network.xconfig "$dir/configs/"
  $train_cmd "$dir/log/xconfig.log" nnet3-xconfig-to-configs --xconfig-file="$dir/configs/network.xconfig" \
    --config-dir="$dir/configs"
  echo "num_targets=10" >>"$dir/configs/vars"
  python local/digit_targets.py data/train data/train/digits.txt
  $train_cmd "data/train/log/targets.log" copy-int-vector ark:data/train/digits.txt \
    "ark,scp:$PWD/data/train/digits.ark,data/train/digits.scp"
fi

if [ "$stage" -le 3 ]; then
  echo "$0: training for $num_epochs epochs, learning rate from $initial_lrate to $final_lrate"
  nnet3-train-raw-rnn --use-gpu=no --dir="$dir" --feat-dir=data/train --targets-scp=data/train/digits.scp \
    --use-dense-targets=false --feat.cmvn-opts="--norm-means=true" \
    --egs.chunk-width=60,40,30,20,12 --egs.chunk-left-context=$context --egs.chunk-right-context=$context \
    --egs.opts="--num-utts-subset 600 --num-utts-subset-valid 60 --num-train-frames-combine 25000" --trainer.samples-per-iter=6000 \
    --trainer.srand="$srand" --trainer.num-epochs="$num_epochs" \
    --trainer.rnn.num-chunk-per-minibatch=32 --trainer.optimization.momentum=0 \
    --trainer.dropout-schedule="0,0.15@0.2,0.15@0.6,0" \
    --trainer.optimization.num-jobs-initial=1 --trainer.optimization.num-jobs-final=1 \
    --trainer.optimization.initial-effective-lrate="$initial_lrate" \
    --trainer.optimization.final-effective-lrate="$final_lrate"
  $train_cmd "$dir/log/report.log" nnet3-report "$dir"
fi

if [ "$stage" -le 4 ]; then
  echo "$0: computing log-posteriors of the test set"
  features="apply-cmvn --norm-means=true --utt2spk=ark:data/test/utt2spk scp:data/test/cmvn.scp scp:data/test/feats.scp ark:- |"
  $train_cmd "$dir/log/compute.log" nnet3-compute --use-gpu=no --frames-per-chunk=1000 \
    --extra-left-context=$context --extra-right-context=$context \
    "nnet3-copy --prepare-for-test=true $dir/final.raw - |" "ark:$features" "ark:$dir/output.ark"
fi

python utils/score.py fsdd "$dir/output.ark" data/test/text "$dir/confusions.png"
