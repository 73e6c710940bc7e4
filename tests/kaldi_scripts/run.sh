#!/usr/bin/env bash
# Kaldi's own training scripts over our programs alone.
#
#   tests/kaldi_scripts/run.sh --kaldi DIR [--fsdd DIR] [--work DIR] [--stages "data raw_dnn ..."]
#
# DIR of --kaldi is a checkout of Kaldi: only its scripts are used (egs/wsj/s5/{steps,utils},
# egs/sre08/v1/sid), nothing of it has to be compiled and none of its programs may be on PATH.
# --fsdd is the folder of the Free Spoken Digit Dataset's recordings (default ../shared/data/fsdd beside
# the checkout). Needs perl, the extra "recipe" and a python command. Each stage prints its CPU seconds;
# at the end come the reports, and the run fails if a log has a warning that only we give.
set -euo pipefail

here=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
root=$(cd -- "$here/../.." && pwd)
kaldi='' fsdd=$root/../shared/data/fsdd work=$PWD/kaldi-scripts-run
stages="data ali raw_dnn raw_rnn dnn rnn multilingual xvector output chain chain2 chain_e2e reports"
usage() { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit "$1"; }
while [ $# -gt 0 ]; do
  case $1 in
    --help) usage 0 ;;
    --kaldi | --fsdd | --work | --stages)
      [ $# -ge 2 ] || usage 1
      declare "${1#--}=$2"
      shift 2
      ;;
    *) echo "run.sh: unknown argument $1" >&2; usage 1 ;;
  esac
done
[ -d "$kaldi/egs/wsj/s5/steps" ] || { echo "run.sh: --kaldi=$kaldi is no checkout of Kaldi (no egs/wsj/s5/steps)" >&2; exit 1; }
[ -d "$fsdd" ] || { echo "run.sh: no recordings in $fsdd (--fsdd)" >&2; exit 1; }
kaldi=$(cd "$kaldi" && pwd) fsdd=$(cd "$fsdd" && pwd)

mkdir -p "$work/conf"
cd "$work"
ln -sfn "$kaldi/egs/wsj/s5/steps" steps
ln -sfn "$kaldi/egs/wsj/s5/utils" utils
ln -sfn "$kaldi/egs/sre08/v1/sid" sid
cat >path.sh <<EOF
export PATH=$root/bin:$work/utils:$root/.venv/bin:\$PATH LC_ALL=C
EOF
. ./path.sh
printf '%s\n' --sample-frequency=8000 --use-energy=false --num-mel-bins=23 --num-ceps=20 --dither=0 >conf/mfcc.conf
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
common=(--cmd run.pl --use-gpu no --cleanup false --trainer.optimization.num-jobs-initial 1
  --trainer.optimization.num-jobs-final 1)

configs() { # DIR < xconfig: the network's config files, by our xconfig
  mkdir -p "$1/configs"
  cat >"$1/configs/network.xconfig"
  nnet3-xconfig-to-configs --xconfig-file "$1/configs/network.xconfig" --config-dir "$1/configs/"
}

stage_data() {
  python "$root/egs/fsdd/local/prepare_data.py" "$fsdd" data
  for part in train test; do
    utils/validate_data_dir.sh --no-feats data/$part
    steps/make_mfcc.sh --nj 2 --cmd run.pl --mfcc-config conf/mfcc.conf data/$part
    steps/compute_cmvn_stats.sh data/$part
    utils/fix_data_dir.sh data/$part
    utils/validate_data_dir.sh data/$part
  done
}

stage_ali() {
  python "$here/make_alignments.py" data/train exp/ali
  ali-to-pdf exp/ali/final.mdl "ark:gunzip -c exp/ali/ali.1.gz |" "ark,scp:$work/exp/ali/pdfs.ark,exp/ali/pdfs.scp"
}

stage_raw_dnn() {
  configs exp/raw_dnn <<X
input dim=20 name=input
fixed-affine-layer name=lda input=Append(-2,-1,0,1,2) affine-transform-file=exp/raw_dnn/configs/lda.mat
relu-batchnorm-layer name=tdnn1 dim=128
relu-batchnorm-layer name=tdnn2 dim=128 input=Append(-1,0,1)
relu-batchnorm-layer name=tdnn3 dim=110 input=Append(-3,3)
output-layer name=output dim=30
X
  echo num_targets=30 >>exp/raw_dnn/configs/vars
  steps/nnet3/train_raw_dnn.py "${common[@]}" --trainer.num-epochs 3 --egs.frames-per-eg 7 \
    --trainer.samples-per-iter 400000 --trainer.optimization.minibatch-size 512 \
    --trainer.optimization.initial-effective-lrate 0.003 --trainer.optimization.final-effective-lrate 0.0003 \
    --feat.cmvn-opts "--norm-means=true --norm-vars=true" --egs.opts "--num-utts-subset 200 --nj 2" \
    --targets-scp exp/ali/pdfs.scp --use-dense-targets false --feat-dir data/train --dir exp/raw_dnn
}

stage_raw_rnn() {
  configs exp/raw_rnn <<X
input dim=20 name=input
fast-lstmp-layer name=lstm1 cell-dim=64 recurrent-projection-dim=24 non-recurrent-projection-dim=24 delay=-3 decay-time=20
output-layer name=output dim=30 output-delay=3
X
  echo num_targets=30 >>exp/raw_rnn/configs/vars
  steps/nnet3/train_raw_rnn.py "${common[@]}" --trainer.num-epochs 6 --egs.chunk-width 20,15 \
    --egs.chunk-left-context 10 --egs.chunk-right-context 0 --egs.chunk-left-context-initial 0 \
    --egs.chunk-right-context-final 0 \
    --trainer.samples-per-iter 2000 --trainer.optimization.momentum 0.5 --trainer.rnn.num-chunk-per-minibatch 128,64 \
    --trainer.optimization.initial-effective-lrate 0.003 --trainer.optimization.final-effective-lrate 0.0003 \
    --trainer.optimization.shrink-value 0.99 --trainer.deriv-truncate-margin 8 \
    --feat.cmvn-opts "--norm-means=true --norm-vars=true" --egs.opts "--num-utts-subset 200 --nj 2" \
    --targets-scp exp/ali/pdfs.scp --use-dense-targets false --feat-dir data/train --dir exp/raw_rnn
}

stage_dnn() {
  configs exp/dnn <<X
input dim=20 name=input
fixed-affine-layer name=lda input=Append(-2,-1,0,1,2) affine-transform-file=exp/dnn/configs/lda.mat
relu-renorm-layer name=tdnn1 dim=64
relu-renorm-layer name=tdnn2 dim=64 input=Append(-3,0,3)
output-layer name=output dim=30
X
  steps/nnet3/train_dnn.py --stage -10 "${common[@]}" --trainer.num-epochs 2 --egs.frames-per-eg 4 \
    --trainer.samples-per-iter 400000 --trainer.optimization.minibatch-size 256,128 \
    --trainer.optimization.initial-effective-lrate 0.003 --trainer.optimization.final-effective-lrate 0.0003 \
    --feat.cmvn-opts "--norm-means=true --norm-vars=true" --egs.opts "--num-utts-subset 200 --nj 2" \
    --feat-dir data/train --lang data/lang --ali-dir exp/ali --dir exp/dnn
}

stage_rnn() {
  configs exp/rnn <<X
input dim=20 name=input
fixed-affine-layer name=lda input=Append(-2,-1,0,1,2) delay=3 affine-transform-file=exp/rnn/configs/lda.mat
relu-batchnorm-layer name=tdnn1 dim=48
norm-opgru-layer name=opgru1 cell-dim=48 recurrent-projection-dim=16 non-recurrent-projection-dim=16 delay=-3
output-layer name=output dim=30 output-delay=3
X
  steps/nnet3/train_rnn.py --stage -10 "${common[@]}" --trainer.num-epochs 2 --egs.chunk-width 20 \
    --egs.chunk-left-context 10 --egs.chunk-left-context-initial 0 --egs.chunk-right-context-final 0 \
    --trainer.samples-per-iter 2000 --trainer.optimization.momentum 0 --trainer.rnn.num-chunk-per-minibatch 64 \
    --trainer.optimization.initial-effective-lrate 0.003 --trainer.optimization.final-effective-lrate 0.0003 \
    --trainer.optimization.backstitch-training-scale 0.3 --trainer.optimization.backstitch-training-interval 4 \
    --feat.cmvn-opts "--norm-means=true --norm-vars=true" --egs.opts "--num-utts-subset 200 --nj 2" \
    --feat-dir data/train --lang data/lang --ali-dir exp/ali --dir exp/rnn
}

stage_multilingual() { # two "languages": pdfs and digits; egs combined, outputs output-0 and output-1
  local lang
  mkdir -p exp/multi
  utils/copy_data_dir.sh --utt-prefix b_ --spk-prefix b_ data/train data/train_b
  python "$root/egs/fsdd/local/digit_targets.py" data/train_b exp/multi/digits
  copy-int-vector "ark:exp/multi/digits" "ark,scp:$work/exp/multi/digits.ark,exp/multi/digits.scp"
  configs exp/multi/net <<X
input dim=20 name=input
relu-batchnorm-layer name=tdnn1 dim=64 input=Append(-2,0,2)
relu-batchnorm-layer name=tdnn2 dim=64 input=Append(-3,0,3)
relu-batchnorm-layer name=prefinal0 dim=40 input=tdnn2
output-layer name=output-0 dim=30
relu-batchnorm-layer name=prefinal1 dim=40 input=tdnn2
output-layer name=output-1 dim=10
output-layer name=output input=tdnn2 dim=30 max-change=1.5
X
  for lang in 0 1; do
    local data=data/train scp=exp/ali/pdfs.scp n=30
    if [ $lang = 1 ]; then data=data/train_b scp=exp/multi/digits.scp n=10; fi
    steps/nnet3/get_egs_targets.sh --cmd run.pl --nj 2 --num-utts-subset 100 --generate-egs-scp true \
      --cmvn-opts "--norm-means=true" --target-type sparse --num-targets $n --left-context 5 --right-context 5 \
      --frames-per-eg 4 --samples-per-iter 8000 $data $scp exp/multi/egs$lang
  done
  steps/nnet3/multilingual/combine_egs.sh --lang2weight "1.0,0.5" 2 exp/multi/egs0 exp/multi/egs1 exp/multi/egs
  steps/nnet3/train_raw_dnn.py "${common[@]}" --trainer.num-epochs 0.5 --egs.frames-per-eg 4 \
    --trainer.optimization.minibatch-size 256 --egs.dir exp/multi/egs --dir exp/multi/net \
    --trainer.optimization.initial-effective-lrate 0.003 --trainer.optimization.final-effective-lrate 0.0005
}

stage_xvector() { # speakers are what is told apart
  local dir=exp/xvector
  echo --vad-energy-threshold=5.5 >conf/vad.conf
  steps/compute_vad_decision.sh --nj 2 --cmd run.pl --vad-config conf/vad.conf data/train
  sid/nnet3/xvector/get_egs.sh --cmd run.pl --nj 2 --frames-per-iter 6000000 --frames-per-iter-diagnostic 10000 \
    --min-frames-per-chunk 15 --max-frames-per-chunk 25 --num-diagnostic-archives 3 --num-repeats 100 \
    --num-heldout-utts 100 data/train $dir/egs
  configs $dir <<X
input dim=20 name=input
relu-batchnorm-layer name=tdnn1 input=Append(-2,-1,0,1,2) dim=48
relu-batchnorm-layer name=tdnn2 input=Append(-2,0,2) dim=48
stats-layer name=stats config=mean+stddev(0:1:1:1000)
relu-batchnorm-layer name=tdnn6 dim=32 input=stats
relu-batchnorm-layer name=tdnn7 dim=32
output-layer name=output include-log-softmax=true dim=6
X
  cp $dir/configs/final.config $dir/nnet.config
  echo "output-node name=output input=tdnn6.affine" >$dir/extract.config
  echo 1000 >$dir/max_chunk_size
  echo 15 >$dir/min_chunk_size
  steps/nnet3/train_raw_dnn.py "${common[@]}" --trainer.optimization.proportional-shrink 10 \
    --trainer.optimization.momentum 0.5 --trainer.optimization.minibatch-size 64 --trainer.srand 123 \
    --trainer.max-param-change 2 --trainer.num-epochs 3 --trainer.dropout-schedule 0,0@0.20,0.1@0.50,0 \
    --trainer.shuffle-buffer-size 1000 --egs.frames-per-eg 1 --egs.dir $dir/egs \
    --trainer.optimization.initial-effective-lrate 0.002 --trainer.optimization.final-effective-lrate 0.0005 --dir $dir
  sid/nnet3/xvector/extract_xvectors.sh --cmd run.pl --nj 2 $dir data/train $dir/xvectors
  [ "$(wc -l <$dir/xvectors/spk_xvector.scp)" = 6 ]
}

chain_configs() { # DIR NUM_PDFS
  configs "$1" <<X
input dim=20 name=input
relu-batchnorm-layer name=tdnn1 dim=48 input=Append(-1,0,1)
relu-batchnorm-layer name=tdnn2 dim=48 input=Append(-3,0,3)
output-layer name=output include-log-softmax=false dim=$2
output-layer name=output-xent input=tdnn2 dim=$2 learning-rate-factor=5.0
X
}
chain_common=(--use-gpu no --cleanup false --trainer.num-epochs 1 --trainer.optimization.num-jobs-initial 1
  --trainer.optimization.num-jobs-final 2 --trainer.optimization.initial-effective-lrate 0.002
  --trainer.optimization.final-effective-lrate 0.0004 --trainer.num-chunk-per-minibatch 64,32
  --trainer.frames-per-iter 10000 --trainer.max-param-change 2.0 --trainer.optimization.momentum 0.0
  --chain.xent-regularize 0.1 --chain.leaky-hmm-coefficient 0.1 --chain.l2-regularize 0.00005
  --chain.apply-deriv-weights false --feat.cmvn-opts "--norm-means=true --norm-vars=true")

same_models() { # DIR OURS: what our driver made is the same as what Kaldi's script made, byte for byte
  local model
  for model in 0 1 2 final; do cmp "$1/$model.mdl" "$2/$model.mdl"; done
}

stage_chain() { # supervision from lattices; then the same examples by our own driver
  local options dir=exp/chain
  utils/subset_data_dir.sh data/train 600 data/chain
  python "$here/make_chain_inputs.py" data/chain exp/chain_lat
  chain_configs $dir 22
  options=("${chain_common[@]}" --egs.chunk-width 24,18 --chain.lm-opts "--ngram-order=2 --no-prune-ngram-order=1"
    --feat-dir data/chain --tree-dir exp/chain_lat --lat-dir exp/chain_lat)
  time steps/nnet3/chain/train.py --stage -10 --cmd run.pl "${options[@]}" --egs.opts "--num-utts-subset 40" --dir $dir
  mkdir -p ${dir}_driver
  cp -r $dir/configs ${dir}_driver
  time nnet3-train-chain "${options[@]}" --egs.opts="--num-utts-subset 40" --dir ${dir}_driver
  same_models $dir ${dir}_driver
}

stage_chain2() { # after stage chain: the scripts of chain2, whose examples and outputs have a language
  local dir=exp/chain2 lat=exp/chain_lat
  mkdir -p $dir/init $dir/den_fsts
  configs $dir <<X
input dim=20 name=input
fixed-affine-layer name=lda input=Append(-2,-1,0,1,2) affine-transform-file=$dir/configs/lda.mat
relu-batchnorm-layer name=tdnn1 dim=48
relu-batchnorm-layer name=tdnn2 dim=48 input=Append(-3,0,3)
output-layer name=output include-log-softmax=false dim=22
output-layer name=output-default input=tdnn2 include-log-softmax=false dim=22
output-layer name=output-xent input=tdnn2 dim=22 learning-rate-factor=5.0
output-layer name=output-default-xent input=tdnn2 dim=22 learning-rate-factor=5.0
X
  copy-transition-model $lat/final.mdl $dir/init/default_trans.mdl
  printf '%s\n' "frame_subsampling_factor 3" "langs default" "model_left_context 5" "model_right_context 5" >$dir/init/info.txt
  cp $lat/tree $dir/default.tree
  chain-est-phone-lm --num-extra-lm-states=20 \
    "ark:gunzip -c $lat/ali.1.gz | ali-to-phones $lat/final.mdl ark:- ark:- |" $dir/den_fsts/default.phone_lm.fst
  chain-make-den-fst $dir/default.tree $dir/init/default_trans.mdl $dir/den_fsts/default.phone_lm.fst \
    $dir/den_fsts/default.den.fst $dir/den_fsts/default.normalization.fst
  steps/chain2/get_raw_egs.sh --cmd run.pl --lang default --cmvn-opts "--norm-means=true --norm-vars=true" \
    --left-context 6 --right-context 6 --frame-subsampling-factor 3 --alignment-subsampling-factor 3 \
    --frames-per-chunk 24,18 data/chain $dir $lat $dir/raw_egs
  steps/chain2/process_egs.sh --cmd run.pl --num-repeats 1 --num-utts-subset 100 $dir/raw_egs $dir/processed_egs
  steps/chain2/randomize_egs.sh --cmd run.pl --frames-per-job 10000 $dir/processed_egs $dir/egs
  steps/chain2/compute_preconditioning_matrix.sh --cmd run.pl --nj "$(ls $dir/egs/train.*.scp | wc -l)" \
    $dir/configs/init.raw $dir/egs $dir
  nnet3-init $dir/configs/init.raw $dir/configs/final.config $dir/init/default.raw
  steps/chain2/train.sh --cmd run.pl --use-gpu no --xent-regularize 0.1 --leaky-hmm-coefficient 0.1 \
    --max-param-change 2.0 --num-jobs-initial 1 --num-jobs-final 2 --num-epochs 1 --minibatch-size 64,32 \
    --initial-effective-lrate 0.002 --final-effective-lrate 0.0004 $dir/egs $dir
  nnet3-am-info $dir/final.mdl
}

stage_chain_e2e() { # supervision from transcripts, of recordings of four lengths
  local digit options dir=exp/chain_e2e tree=exp/chain_e2e_tree lengths='36 39 42 45'
  mkdir -p data/dict $tree
  for digit in 0 1 2 3 4 5 6 7 8 9; do echo "$digit a$digit b$digit"; done >data/dict/lexicon.txt
  echo "<UNK> spn" >>data/dict/lexicon.txt
  for digit in 0 1 2 3 4 5 6 7 8 9; do printf 'a%s\nb%s\n' $digit $digit; done >data/dict/nonsilence_phones.txt
  printf 'sil\nspn\n' >data/dict/silence_phones.txt
  echo sil >data/dict/optional_silence.txt
  nnet3-prepare-lang --position-dependent-phones=false --chain-topology=true data/dict "<UNK>" data/lang_e2e
  tr ' ' '\n' <<<"$lengths" >data/lengths
  awk 'NR == FNR { allowed[$1]; next } $2 in allowed { print $1 }' data/lengths data/train/utt2num_frames >data/chosen
  utils/subset_data_dir.sh --utt-list data/chosen data/train data/chain_e2e
  cp data/lengths data/chain_e2e/allowed_lengths.txt
  nnet3-text-to-phones data/lang_e2e data/chain_e2e/text $tree/phones
  chain-est-phone-lm --num-extra-lm-states=20 "ark:$tree/phones" $tree/phone_lm.fst
  steps/nnet3/chain/e2e/prepare_e2e.sh --nj 2 --cmd run.pl data/chain_e2e data/lang_e2e $tree
  chain_configs $dir "$(tree-info $tree/tree | awk '$1 == "num-pdfs" { print $2 }')"
  options=("${chain_common[@]}" --feat-dir data/chain_e2e --tree-dir $tree)
  time steps/nnet3/chain/e2e/train_e2e.py --stage -10 --cmd run.pl "${options[@]}" \
    --egs.opts "--num-utts-subset 40 --nj 2" --dir $dir
  mkdir -p ${dir}_driver
  cp -r $dir/configs ${dir}_driver
  time nnet3-train-chain-e2e "${options[@]}" --egs.opts="--num-utts-subset 40 --nj 2" --dir ${dir}_driver
  same_models $dir ${dir}_driver
}

stage_output() {
  steps/nnet3/compute_output.sh --nj 2 --cmd run.pl data/test exp/raw_dnn exp/raw_dnn/output
  steps/nnet3/compute_output.sh --nj 2 --cmd run.pl --apply-exp true data/test exp/dnn exp/dnn/output
  steps/nnet3/make_bottleneck_features.sh --nj 2 --cmd run.pl --use-gpu false tdnn2.batchnorm data/test \
    data/test_bnf exp/raw_dnn exp/bnf/log exp/bnf/data
  [ "$(wc -l <exp/raw_dnn/output/output.scp)" = 300 ]
}

stage_reports() {
  local dir
  # Not raw_rnn: Kaldi's log_parse.py looks for more numbers than the line of an LSTM has, in Kaldi's
  # own logs, too (fill_nonlin_stats_table_with_regex_result, fifth gate).
  for dir in raw_dnn dnn rnn xvector; do
    steps/nnet3/report/generate_plots.py exp/$dir exp/$dir/report
  done
  nnet3-train --use-gpu=no --computation.debug=true exp/raw_dnn/0.raw \
    "ark:nnet3-copy-egs --frame=0 ark:exp/raw_dnn/egs/egs.1.ark ark:- | nnet3-subset-egs --n=64 ark:- ark:- | nnet3-merge-egs --minibatch-size=64 ark:- ark:- |" \
    /dev/null 2>exp/debug.log
  steps/nnet3/report/summarize_compute_debug_timing.py <exp/debug.log >exp/timing
  python "$here/summarize.py" .
}

for program in nnet3-train nnet3-get-egs copy-feats ali-to-pdf; do
  found=$(command -v $program)
  [ "$found" = "$root/bin/$program" ] || { echo "run.sh: $program is $found, not ours" >&2; exit 1; }
done
spent() { # seconds of CPU that what this shell started has taken
  times >log/times # in a pipe it would tell of the pipe
  awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); sum += 60 * t[1] + t[2] }; print sum }' log/times
}

mkdir -p log data/lang
for stage in $stages; do
  echo "== $stage"
  spent >log/before
  set +e # in a condition the stage would go on after an error
  (set -e; "stage_$stage") >"log/$stage" 2>&1
  status=$?
  set -e
  [ $status = 0 ] || { tail -n 20 "log/$stage"; echo "run.sh: stage $stage failed; all it said is in $PWD/log/$stage" >&2; exit 1; }
  spent >log/after
  paste log/before log/after | awk '{ printf "   %.1f s of CPU\n", $2 - $1 }'
done
[ ! -f log/reports ] || cat log/reports
