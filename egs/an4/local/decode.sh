#!/usr/bin/env bash
# usage: local/decode.sh MODEL GRAPH_DIR DATA OUT LM_SCALE...
#
# Lattices OUT/lat.ark of a data folder, and for each scale of the language model the best words, OUT/text.LM_SCALE.
set -euo pipefail
model=$1 graph=$2 data=$3 out=$4
shift 4
feats="ark,s,cs:apply-cmvn --norm-vars=false --utt2spk=ark:$data/utt2spk scp:$data/cmvn.scp scp:$data/feats.scp ark:- |"
$train_cmd "$out/log/decode.log" nnet3-latgen-faster --frame-subsampling-factor=3 --frames-per-chunk=150 \
  --extra-left-context-initial=0 --extra-right-context-final=0 --minimize=false --max-active=7000 --min-active=200 \
  --beam=15.0 --lattice-beam=8.0 --acoustic-scale=1.0 --allow-partial=true --word-symbol-table="$graph/words.txt" \
  "$model" "$graph/HCLG.fst" "$feats" "ark:$out/lat.ark"
for scale in "$@"; do
  $train_cmd "$out/log/best.$scale.log" lattice-best-path --lm-scale="$scale" "ark:$out/lat.ark" "ark,t:$out/words.int"
  awk 'NR == FNR { word[$2] = $1; next } { line = $1; for (i = 2; i <= NF; i++) line = line " " word[$i]; print line }' \
    "$graph/words.txt" "$out/words.int" > "$out/text.$scale"
done
