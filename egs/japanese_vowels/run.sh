#!/usr/bin/env bash
# Japanese Vowels: which of 9 speakers said /ae/?  270 training and 370 test utterances of 12 LPC
# cepstra a frame (Kudo, Toyama and Shimbo 1999; UCI).  A TDNN of 15,000 parameters classifies every
# frame; an utterance goes to the speaker with the highest summed log-posterior.
#
# usage: egs/japanese_vowels/run.sh [--stage N] [--num-passes N] [--srand N] [--driver false] [--dir DIR]
# With --driver false the programs of a training are called one by one instead of nnet3-train-raw-rnn.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

stage=0
driver=true
num_passes=20
initial_lrate=0.005
final_lrate=0.001
num_average=10
minibatch_size=32
srand=0
dir=exp/tdnn

. ./path.sh
. ./cmd.sh
. utils/parse_options.sh

mkdir -p data "$dir/log" "$dir/configs"

if [ "$stage" -le 0 ]; then
  echo "$0: getting the data (PyPI package aeon 1.6.0 ships it)"
  files=aeon/datasets/data/JapaneseVowels/JapaneseVowels
  utils/from_wheel.sh aeon==1.6.0 data/download ${files}_TRAIN.ts ${files}_TEST.ts
fi

if [ "$stage" -le 1 ]; then
  echo "$0: writing features and posteriors as Kaldi tables"
  for part in train test; do
    python local/prepare_data.py "data/download/JapaneseVowels_${part^^}.ts" "data/$part"
  done
fi

if [ "$stage" -le 2 ] && [ "$driver" = true ]; then
  echo "$0: creating the network"
  $train_cmd "$dir/log/info.log" nnet3-info "nnet3-init conf/network.config - |"
  cp conf/network.config "$dir/configs/final.config"
  sed -n 's/^left-context: /model_left_context=/p; s/^right-context: /model_right_context=/p' "$dir/log/info.log" \
    >"$dir/configs/vars"
  echo "num_targets=9" >>"$dir/configs/vars"
  awk '{ of[$2] = of[$2] " " $1 } END { for (s in of) print s of[s] }' data/train/utt2spk | sort >data/train/spk2utt
  $train_cmd data/train/log/cmvn.log compute-cmvn-stats --spk2utt=ark:data/train/spk2utt scp:data/train/feats.scp \
    "ark,scp:$PWD/data/train/cmvn.ark,data/train/cmvn.scp"
fi

if [ "$stage" -le 3 ] && [ "$driver" = true ]; then
  echo "$0: training for $num_passes epochs, learning rate from $initial_lrate to $final_lrate"
  # The speaker is what is to be found: features are not normalised by speaker, nor otherwise.
  nnet3-train-raw-rnn --use-gpu=no --dir="$dir" --feat-dir=data/train --targets-scp=data/train/targets.scp \
    --use-dense-targets=false --feat.cmvn-opts="--norm-means=false" --egs.opts="--num-utts-subset 250 --num-utts-subset-valid 9" \
    --egs.chunk-width=7 --egs.chunk-left-context=0 --trainer.srand="$srand" --trainer.num-epochs="$num_passes" \
    --trainer.rnn.num-chunk-per-minibatch="$minibatch_size" --trainer.optimization.momentum=0 \
    --trainer.optimization.num-jobs-initial=1 --trainer.optimization.num-jobs-final=1 \
    --trainer.optimization.max-models-combine="$num_average" \
    --trainer.optimization.initial-effective-lrate="$initial_lrate" \
    --trainer.optimization.final-effective-lrate="$final_lrate"
fi

if [ "$stage" -le 2 ] && [ "$driver" = false ]; then
  echo "$0: creating the network and the examples"
  $train_cmd "$dir/log/init.log" nnet3-init --srand=$srand conf/network.config "$dir/0.raw"
  $train_cmd "$dir/log/info.log" nnet3-info "$dir/0.raw"
  context=$(sed -n 's/^left-context: //p; s/^right-context: //p' "$dir/log/info.log" | xargs)
  $train_cmd "$dir/log/get_egs.log" nnet3-get-egs --num-pdfs=9 \
    --left-context="${context% *}" --right-context="${context#* }" --num-frames=7 \
    ark:data/train/feats.ark "ark:ali-to-post ark:data/train/targets.ark ark:- |" "ark:$dir/egs.ark"
fi

if [ "$stage" -le 3 ] && [ "$driver" = false ]; then
  echo "$0: training for $num_passes passes, learning rate from $initial_lrate to $final_lrate"
  for pass in $(seq 0 $((num_passes - 1))); do
    lrate=$(awk -v a=$initial_lrate -v b=$final_lrate -v i="$pass" -v n="$num_passes" \
      'BEGIN { print a * (b / a) ^ (i / (n > 1 ? n - 1 : 1)) }')
    $train_cmd "$dir/log/train.$pass.log" nnet3-train --use-gpu=no --srand="$pass" --print-interval=100 \
      "nnet3-copy --learning-rate=$lrate $dir/$pass.raw - |" \
      "ark:nnet3-shuffle-egs --srand=$pass ark:$dir/egs.ark ark:- | nnet3-merge-egs --minibatch-size=$minibatch_size ark:- ark:- |" \
      "$dir/$((pass + 1)).raw"
    # Only the last models are averaged below; no other is needed again.
    [ "$pass" -eq 0 ] || [ "$pass" -gt $((num_passes - num_average)) ] || rm "$dir/$pass.raw"
    sed -n "s/.*Overall average objective function for 'output' is \([^ ]*\).*/  pass $pass: log-probability per frame \1/p" \
      "$dir/log/train.$pass.log"
  done
  # In 22 of 27 trial runs the average did as well as the last model or better.
  first=$((num_passes > num_average ? num_passes - num_average + 1 : 1))
  models=$(seq -f "$dir/%.0f.raw" "$first" "$num_passes")
  $train_cmd "$dir/log/average.log" nnet3-average $models "$dir/final.raw"
fi

if [ "$stage" -le 4 ]; then
  echo "$0: computing log-posteriors of the test set"
  $train_cmd "$dir/log/compute.log" nnet3-compute --use-gpu=no \
    "nnet3-copy --prepare-for-test=true $dir/final.raw - |" ark:data/test/feats.ark "ark:$dir/output.ark"
fi

python utils/score.py japanese_vowels "$dir/output.ark" data/test/utt2spk
