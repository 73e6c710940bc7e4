#!/usr/bin/env bash
# AN4 (Carnegie Mellon University, 1991): spelled names, dates and numbers, 948 training and 130 test utterances.
# Data preparation, then nnet3-train-recognizer: from sound and transcripts to the directory of a recognizer.
#
# usage: egs/an4/run.sh [--data DIR] [--quick] [--held-out] [--seed N] [--dir DIR] [--use-gpu yes] [--num-jobs N]
#
#   --data DIR    the corpus (etc/, wav/). Without --data the public repository https://github.com/cmusphinx/an4 is
#                 cloned (92 MB). Without a network: copy that folder from another machine, and give it here.
#   --quick       a small network and few passes: does everything work?
#   --held-out    every eighth training speaker in place of the test set: to choose things
#   --dir DIR     where the recognizer goes (exp/full, exp/quick or exp/held_out in this folder)
#
# Called again with the same options, it goes on where it stopped. Disk: 450 MB while it trains, of which most is
# removed at the end.
set -euo pipefail
called_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")"

data= seed=0 dir= quick=false use_gpu=no num_jobs=0 held_out=false
args=()
for word in "$@"; do
  case "$word" in
    --help | -h) sed -n '2,/^[^#]/s/^# \?//p' run.sh | sed '$!b;/^set/d'; exit 0 ;;
    --quick | --held-out) args+=("$word=true") ;;
    *) args+=("$word") ;;
  esac
done
set -- "${args[@]}"
. utils/parse_options.sh
. ./path.sh

kind=full size=small
[ "$held_out" = false ] || kind=held_out
[ "$quick" = false ] || kind=quick size=tiny
# from_caller PATH: the path, which is relative to where the recipe was called from
from_caller() { case "$1" in /*) echo "$1" ;; *) echo "$called_from/$1" ;; esac }
if [ -n "$dir" ]; then dir=$(from_caller "$dir"); else dir=exp/$kind; fi
if [ -n "$data" ]; then data=$(from_caller "$data"); else data=$PWD/data/an4; local/get_data.sh "$data"; fi
if [ -f "$data/LICENSE" ]; then sed -n '1,3p' "$data/LICENSE"; fi

prepared=$dir/data
python local/prepare_data.py "$data" "$prepared" $([ "$held_out" = false ] || echo --held-out)
nnet3-train-recognizer --size=$size --arpa="$data/etc/an4.lm" --test="$prepared/test" --held-out-share=0.05 \
  --seed="$seed" --use-gpu="$use_gpu" --num-jobs="$num_jobs" "$prepared/train" "$prepared/lexicon.txt" "$dir"

# The words of the test set, by the recognizer as it is.
nnet3-decode "$dir" "scp:$prepared/test/wav.scp" > "$dir/test.txt" 2> "$dir/test.log"
result=$(compute-wer --mode=all --text=true "ark:$prepared/test/text" "ark:$dir/test.txt" 2> /dev/null |
  sed -n 's/^%WER \([0-9.]*\) \[ \([0-9]*\) \/ \([0-9]*\),.*/\1 \2 \3/p')
echo "$0: word errors, curves, confusions and the worst utterances: $(realpath "$dir")/report.html"
echo "RESULT an4 $result"
