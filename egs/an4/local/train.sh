#!/usr/bin/env bash
# usage: local/train.sh DIR DEN_FST PASSES LRATE_FIRST LRATE_LAST MINIBATCH XENT SEED USE_GPU AVERAGED
#
# Trains DIR/0.raw on DIR/train.cegs by one job, with a learning rate that falls exponentially; DIR/final.raw is the
# average of the models of the last AVERAGED passes.
# Passes whose models are there are not done again.
set -euo pipefail
dir=$1 den=$2 passes=$3 first=$4 last=$5 minibatch=$6 xent=$7 seed=$8 use_gpu=$9 averaged=${10}
for i in $(seq 0 $((passes - 1))); do
  [ ! -s "$dir/$((i + 1)).raw" ] || continue
  lrate=$(awk -v a="$first" -v b="$last" -v i="$i" -v n="$passes" 'BEGIN { printf "%.6g", a * (b / a) ^ (i / n) }')
  change=2.0
  [ "$i" -ne 0 ] || change=1.41421
  cache=()
  [ ! -s "$dir/cache" ] || cache=("--read-cache=$dir/cache")
  $train_cmd "$dir/log/train.$i.log" nnet3-chain-train --use-gpu="$use_gpu" --apply-deriv-weights=false \
    --l2-regularize=0.00005 --leaky-hmm-coefficient=0.1 --xent-regularize="$xent" --print-interval=50 \
    --max-param-change=$change --srand=$((1000 * seed + i)) "${cache[@]}" --write-cache="$dir/cache" \
    "nnet3-copy --learning-rate=$lrate $dir/$i.raw - |" "$den" \
    "ark:nnet3-chain-copy-egs --frame-shift=$((i % 3)) ark:$dir/train.cegs ark:- | nnet3-chain-shuffle-egs --buffer-size=5000 --srand=$((1000 * seed + i)) ark:- ark:- | nnet3-chain-merge-egs --minibatch-size=$minibatch ark:- ark:- |" \
    "$dir/$((i + 1)).raw"
  objective=$(sed -n "s/.*Overall average objective function for 'output' is \(\S*\).*/\1/p" "$dir/log/train.$i.log")
  message="  pass $((i + 1)) of $passes: learning rate $lrate, objective $objective"
  if [ $((i % 4)) -eq 3 ] || [ "$i" -eq $((passes - 1)) ]; then
    for part in valid train; do
      examples=$dir/valid.cegs
      [ $part = valid ] || examples=$dir/traindiag.cegs
      $train_cmd "$dir/log/compute_prob_$part.$((i + 1)).log" nnet3-chain-compute-prob --use-gpu=no --leaky-hmm-coefficient=0.1 \
        "$dir/$((i + 1)).raw" "$den" "ark:nnet3-chain-merge-egs --minibatch-size=1:32 ark:$examples ark:- |"
      value=$(sed -n "s/.*log-probability for 'output' is \(\S*\).*/\1/p" "$dir/log/compute_prob_$part.$((i + 1)).log")
      message+=", $part $value"
    done
  fi
  echo "$message"
done
models=()
for i in $(seq $((passes - averaged + 1)) "$passes"); do models+=("$dir/$i.raw"); done
$train_cmd "$dir/log/average.log" nnet3-average "${models[@]}" "$dir/final.raw"
