#!/usr/bin/env bash
# usage: local/init_network.sh XCONFIG NUM_PDFS DIM BOTTLENECK SEED DIR   Makes DIR/configs and DIR/0.raw.
set -euo pipefail
xconfig=$1 num_pdfs=$2 dim=$3 bottleneck=$4 seed=$5 dir=$6
mkdir -p "$dir/configs"
sed "s/NUM_PDFS/$num_pdfs/; s/BOTTLENECK/$bottleneck/; s/SMALL/$((dim / 2))/g; s/DIM/$dim/" "$xconfig" > "$dir/configs/network.xconfig"
nnet3-xconfig-to-configs --xconfig-file "$dir/configs/network.xconfig" --config-dir "$dir/configs/"
nnet3-init --srand="$seed" "$dir/configs/final.config" "$dir/0.raw"
nnet3-info "$dir/0.raw" > "$dir/info.txt"
