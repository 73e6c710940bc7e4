#!/usr/bin/env bash
# AN4 (Carnegie Mellon University, 1991): spelled names, dates and numbers, 948 training and 130 test utterances.
# From sound and transcripts to words: an end-to-end LF-MMI model from a flat start, whose alignments train
# a second model with left biphones and a cross-entropy branch; a decoding graph of the corpus's language model.
#
# usage: egs/an4/run.sh [--data DIR] [--quick] [--held-out] [--stage N] [--seed N] [--dir DIR] [--use-gpu yes]
set -euo pipefail
called_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")"

data=          # the corpus; empty: clone the public repository
stage=0
seed=0
dir=           # where models go; empty: exp/full, exp/quick or exp/held_out
quick=false    # a small network and few passes
use_gpu=no     # yes: train on a GPU
held_out=false # the test set is every eighth training speaker, none of whom is trained on: to choose things

args=()
for word in "$@"; do
  case "$word" in --quick | --held-out) args+=("$word=true") ;; *) args+=("$word") ;; esac
done
set -- "${args[@]}"
. ./path.sh
. ./cmd.sh
. utils/parse_options.sh

# Schedules, sizes, and the language model's scale (README.md tells where it is from).
lm_scale=0.6
if [ "$quick" = true ]; then
  dir=${dir:-exp/quick}
  copies=1 flat_passes=5 chain_passes=4 averaged=1 biphones=60 dim=64 bottleneck=16 lrate_first=0.004 lrate_last=0.0008
else
  [ "$held_out" = true ] && dir=${dir:-exp/held_out} || dir=${dir:-exp/full}
  copies=4 flat_passes=10 chain_passes=6 averaged=3 biphones=120 dim=256 bottleneck=64 lrate_first=0.002 lrate_last=0.0002
fi
flat_minibatch=80=1:32/150=1:20/300=1:12/700=1:6
flat=$dir/flat chain=$dir/chain prepared=$dir/data
mkdir -p "$prepared"

# mark NAME: from here on time, elapsed and of the CPU, counts for NAME
marks=()
mark() {
  times > "$dir/times"
  cpu=$(awk 'NR == 2 { gsub("[ms]", " "); printf "%d", 60 * $1 + $2 + 60 * $3 + $4 }' "$dir/times")
  marks+=("$SECONDS $cpu $*")
}
begin() {
  if [ "$stage" -gt "$1" ]; then return 1; fi
  mark "$1"
  echo "$0: stage $1 (after $SECONDS s, CPU $cpu s): $2"
}

if begin 0 "data: training utterances resampled to allowed lengths, dictionary"; then
  if [ -z "$data" ]; then
    data=$PWD/data/an4
    local/get_data.sh "$data"
  fi
  cd "$called_from" && data=$(realpath "$data") && cd - > /dev/null
  sed -n '1,3p' "$data/LICENSE"
  python local/prepare_data.py "$data" "$prepared" $copies $([ "$held_out" = false ] || echo --held-out)
  cp "$data/etc/an4.lm" "$prepared/local/an4.lm"
fi

feats="ark,s,cs:apply-cmvn --norm-vars=false --utt2spk=ark:$prepared/train_sp/utt2spk scp:$prepared/train_sp/cmvn.scp scp:$prepared/train_sp/feats.scp ark:- |"
if begin 1 "features: 40 cepstra"; then
  for part in train_sp test; do
    $train_cmd "$dir/log/mfcc.$part.log" compute-mfcc-feats --config=conf/mfcc.conf "scp:$prepared/$part/wav.scp" \
      "ark:| copy-feats --compress=true ark:- ark,scp:$prepared/$part/feats.ark,$prepared/$part/feats.scp"
    $train_cmd "$dir/log/cmvn.$part.log" compute-cmvn-stats --spk2utt="ark:$prepared/$part/spk2utt" \
      "scp:$prepared/$part/feats.scp" "ark,scp:$prepared/$part/cmvn.ark,$prepared/$part/cmvn.scp"
  done
fi

if begin 2 "dictionary and language model as FSTs"; then
  $train_cmd "$dir/log/lang.log" nnet3-prepare-lang --position-dependent-phones=false --chain-topology=true \
    "$prepared"/local/dict "<UNK>" "$prepared"/lang
  $train_cmd "$dir/log/grammar.log" arpa2fst --disambig-symbol='#0' --read-symbol-table="$prepared"/lang/words.txt \
    "$prepared"/local/an4.lm "$prepared"/lang/G.fst
fi

if begin 3 "phone language model, tree of monophones, denominator graph, training graphs"; then
  mkdir -p "$flat"
  $train_cmd "$dir/log/phones.log" nnet3-text-to-phones --between-silprob=0.1 "$prepared"/lang "$prepared"/train_sp/text "$prepared"/phones.txt
  $train_cmd "$dir/log/phone_lm.log" chain-est-phone-lm --num-extra-lm-states=500 ark:"$prepared"/phones.txt "$flat/phone_lm.fst"
  $train_cmd "$dir/log/tree.log" gmm-init-mono --shared-phones="$prepared"/lang/phones/sets.int "$prepared"/lang/topo 10 "$flat/0.mdl" "$flat/tree"
  $train_cmd "$dir/log/transitions.log" copy-transition-model "$flat/0.mdl" "$flat/0.trans_mdl"
  $train_cmd "$dir/log/den.log" chain-make-den-fst "$flat/tree" "$flat/0.trans_mdl" "$flat/phone_lm.fst" \
    "$flat/den.fst" "$flat/normalization.fst"
  $train_cmd "$dir/log/graphs.log" compile-train-graphs --read-disambig-syms="$prepared"/lang/phones/disambig.int \
    --word-symbol-table="$prepared"/lang/words.txt --oov-word="<UNK>" \
    "$flat/tree" "$flat/0.mdl" "$prepared"/lang/L.fst ark:"$prepared"/train_sp/text "ark,scp:$flat/fst.ark,$flat/fst.scp"
fi

# copy_egs DIR: parts DIR/all.scp and writes the examples of each part
copy_egs() {
  python local/hold_out.py "$1/all.scp" "$1"
  for part in valid train traindiag; do
    $train_cmd "$1/log/copy.$part.log" nnet3-chain-copy-egs "scp:$1/$part.scp" "ark:$1/$part.cegs"
  done
}
pdfs_of() { tree-info "$1" 2>/dev/null | awk '$1 == "num-pdfs" { print $2 }'; }

if begin 4 "flat start: network and examples"; then
  $train_cmd "$flat/log/init.log" local/init_network.sh conf/flat.xconfig "$(pdfs_of "$flat/tree")" \
    $dim $bottleneck $((-2 - seed)) "$flat"
  rm -f "$flat"/[1-9]*.raw "$flat/cache"
  $train_cmd "$flat/log/get_egs.log" nnet3-chain-e2e-get-egs --left-context=16 --right-context=16 \
    --num-frames="$(paste -sd, $prepared/train_sp/allowed_lengths.txt)" --frame-subsampling-factor=3 --compress=true \
    "$flat/normalization.fst" "$feats" "ark,s,cs:$flat/fst.ark" "$flat/0.trans_mdl" "ark,scp:$flat/all.cegs,$flat/all.scp"
  copy_egs "$flat"
fi

if begin 5 "flat start: $flat_passes passes, $(sed -n 's/num-parameters: //p' "$flat/info.txt") parameters"; then
  local/train.sh "$flat" "$flat/den.fst" $flat_passes $lrate_first $lrate_last $flat_minibatch 0 "$seed" "$use_gpu" $averaged
  $train_cmd "$flat/log/am.log" nnet3-am-init "$flat/0.trans_mdl" "$flat/final.raw" "$flat/final.mdl"
fi

# recognise DIR: graph, decoding and word error rate of a model
recognise() {
  $train_cmd "$1/log/graph.log" nnet3-make-graph --self-loop-scale=1.0 "$prepared"/lang_said "$1/tree" "$1/0.trans_mdl" "$1/graph"
  mkdir -p "$1/decode"
  local/decode.sh "$1/final.mdl" "$1/graph" "$prepared"/test "$1/decode" 1.0 $lm_scale
  for scale in 1.0 $lm_scale; do  # the one that counts is the last
    cp "$1/decode/text.$scale" "$1/decode/text"
    python local/score.py "$prepared"/test/text "$1/decode/text" "$1/decode" > "$1/decode/wer"
    echo "  language model's scale $scale: word error rate, errors, words: $(cat "$1/decode/wer")"
  done
}

if begin 6 "alignments by the first model; how words were said"; then
  mkdir -p "$chain"
  $train_cmd "$chain/log/align.log" nnet3-align-compiled --use-gpu=no --frame-subsampling-factor=3 --frames-per-chunk=150 \
    --beam=40 --retry-beam=160 --acoustic-scale=1.0 --transition-scale=1.0 --self-loop-scale=1.0 \
    "$flat/final.mdl" "ark:$flat/fst.ark" "$feats" "ark:$chain/ali.ark"
  # lengths are in output frames, a third of the frames
  ali-to-phones --write-lengths=true "$flat/final.mdl" "ark:$chain/ali.ark" ark,t:- 2> "$chain/log/phones.log" |
    awk '{ printf "%s", $1; for (i = 2; i <= NF; i += 3) printf "%s %d %d", (i > 2 ? " ;" : ""), $i, 3 * $(i + 1); print "" }' > "$chain/phones.ali"
  awk '{ printf "%s", $1; for (i = 2; i <= NF; i += 3) printf " %s", $i; print "" }' "$chain/phones.ali" > "$chain/phones.txt"
  pauses=$(python local/pronunciations.py "$prepared"/local/dict "$prepared"/train_sp/text "$chain/phones.txt" \
    "$prepared"/lang/phones.txt "$prepared"/local/dict_said)
  echo "  silence between words: $pauses"
  $train_cmd "$chain/log/lang.log" nnet3-prepare-lang --position-dependent-phones=false --chain-topology=true \
    "$prepared"/local/dict_said "<UNK>" "$prepared"/lang_said
  cp "$prepared"/lang/G.fst "$prepared"/lang_said/
fi

if [ "$quick" = false ] && begin 7 "flat start: decoding graph, test set"; then
  recognise "$flat"
fi

if begin 8 "tree of left biphones, denominator graph, examples"; then
  $train_cmd "$chain/log/counts.log" nnet3-text-to-phones --edge-silprob=0 --between-silprob=0 \
    --phone-counts="$chain/phone_counts.txt" "$prepared"/lang "$prepared"/train_sp/text /dev/null
  $train_cmd "$chain/log/tree.log" gmm-init-biphone --min-biphone-count=$biphones --min-monophone-count=20 \
    --phone-counts="$chain/phone_counts.txt" --shared-phones="$prepared"/lang/phones/sets.int \
    "$prepared"/lang/topo 10 "$chain/0.mdl" "$chain/tree"
  $train_cmd "$chain/log/transitions.log" copy-transition-model "$chain/0.mdl" "$chain/0.trans_mdl"
  $train_cmd "$chain/log/phone_lm.log" chain-est-phone-lm --num-extra-lm-states=500 "ark:$chain/phones.txt" "$chain/phone_lm.fst"
  $train_cmd "$chain/log/den.log" chain-make-den-fst "$chain/tree" "$chain/0.trans_mdl" "$chain/phone_lm.fst" \
    "$chain/den.fst" "$chain/normalization.fst"
  $train_cmd "$chain/log/init.log" local/init_network.sh conf/chain.xconfig "$(pdfs_of "$chain/tree")" \
    $dim $bottleneck $((-2 - seed)) "$chain"
  rm -f "$chain"/[1-9]*.raw "$chain/cache"
  $train_cmd "$chain/log/supervision.log" chain-get-supervision --left-tolerance=5 --right-tolerance=5 --frame-subsampling-factor=3 \
    "$chain/tree" "$chain/0.trans_mdl" "ark:$chain/phones.ali" "ark:$chain/supervision.ark"
  $train_cmd "$chain/log/get_egs.log" nnet3-chain-get-egs --srand=0 --left-context=16 --right-context=16 \
    --num-frames=150,102,66 --frame-subsampling-factor=3 --compress=true "$chain/normalization.fst" "$feats" \
    "ark,s,cs:$chain/supervision.ark" "ark,scp:$chain/all.cegs,$chain/all.scp"
  copy_egs "$chain"
fi

if begin 9 "second model: $chain_passes passes, $(sed -n 's/num-parameters: //p' "$chain/info.txt") parameters"; then
  local/train.sh "$chain" "$chain/den.fst" $chain_passes $lrate_first $lrate_last 1:24 0.1 "$seed" "$use_gpu" $averaged
  $train_cmd "$chain/log/am.log" nnet3-am-init "$chain/0.trans_mdl" "$chain/final.raw" "$chain/final.mdl"
fi

if begin 10 "second model: decoding graph, test set"; then
  recognise "$chain"
fi
for system in "$flat" "$chain"; do
  nnet3-report "$system" 2> "$system/log/report.log"
done
python local/page.py "$dir"
mark end
printf '%s\n' "${marks[@]}" | awk 'NR > 1 { printf "  stage %s: %d s, CPU %d s\n", stage, $1 - elapsed, $2 - cpu }
  { elapsed = $1; cpu = $2; stage = $3 } END { printf "  all: %d s, CPU %d s\n", elapsed, cpu }' | tee "$dir/times"
echo "$0: $SECONDS s; curves, confusions and the worst utterances: $(realpath "$dir")/index.html"
echo "RESULT an4 $(cat "$chain/decode/wer")"
