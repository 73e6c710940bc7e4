"""Which program reads which file: command lines in which one word is the damaged file."""

from collections.abc import Iterator

from support.component_zoo import ZOO
from support.fuzz_chain_samples import BAD_GRAPHS, GRAPHS
from support.fuzz_recognizer import recognizer_targets
from support.fuzz_speech_samples import DAMAGED_FOLDERS

_ONLINE = "--online-ivectors=ark:ivectors.ark --online-ivector-period=10"
_CONTEXT = "--num-pdfs=5 --left-context=4 --right-context=1 --num-frames=4"
_DERIVS = "--output-derivs=ark:derivs.ark --input-derivs=ark:out2"

_COMMANDS = f"""
# configs, models
nnet3-average final.raw *final.txt out
nnet3-copy *final.txt out
nnet3-copy --binary=false *final.raw out
nnet3-copy --edits-config=*edits final.raw out
nnet3-copy --prepare-for-test=true *trained.raw out
nnet3-info *final.raw
nnet3-init *net.config out
nnet3-quantize *final.raw out
nnet3-xconfig-to-configs --xconfig-file=*layers.xconfig --config-dir=configs
nnet3-am-adjust-priors *mdl.txt priors out
nnet3-am-adjust-priors final.mdl *priors out
nnet3-am-copy *final.mdl out
nnet3-am-copy *mdl.txt out
nnet3-am-info *final.mdl
nnet3-am-init *tree *topo mono.raw out
nnet3-show-progress --use-gpu=no final.raw *final.txt
# requests, programs, outputs of networks
nnet3-compile *final.txt request out
nnet3-compile final.raw *request out
nnet3-compile final.raw *request.txt out
nnet3-computation-info *final.raw *program
nnet3-make-request --egs=ark:*egs final.raw out
nnet3-make-request --num-frames=5 *final.txt out
nnet3-compute --use-gpu=no --computation=*program {_DERIVS} final.raw ark:*inputs.ark ark:out
nnet3-compute --use-gpu=no --computation=*program.txt {_DERIVS} final.raw ark:inputs.ark ark:out
nnet3-compute --use-gpu=no --online-ivectors=ark:*ivectors.ark --online-ivector-period=10 \
final.raw ark:feats.ark ark:out
nnet3-compute --use-gpu=no {_ONLINE} *final.raw ark:*feats.ark ark:out
nnet3-compute --use-gpu=no {_ONLINE} final.raw ark:*feats.txt ark:out
nnet3-compute --use-gpu=no --use-priors=true *mdl.txt ark:feats.ark ark:out
nnet3-compute-batch --use-gpu=no {_ONLINE} final.raw ark:*feats.ark ark:out
nnet3-xvector-compute --use-gpu=no *xvector.raw ark:*feats.ark ark:out
nnet3-xvector-compute-batched --use-gpu=no *xvector.raw ark:*feats.ark ark:out
# examples, training
nnet3-get-egs {_CONTEXT} {_ONLINE} ark:*feats.ark ark:post.ark ark:out
nnet3-get-egs {_CONTEXT} ark:feats.ark ark:*post.ark ark:out
nnet3-get-egs {_CONTEXT} ark:feats.ark ark:*post.txt ark:out
nnet3-get-egs-dense-targets --num-targets=5 --num-frames=4 ark:feats.ark ark:*targets.ark ark:out
nnet3-get-egs-simple input=ark:*feats.ark output=ark:targets.ark ark:out
nnet3-copy-egs ark:*egs ark:out
nnet3-copy-egs --frame=0 --left-context=1 ark:*egs.txt ark:out
nnet3-egs-augment-image --horizontal-shift=0.2 --num-channels=3 ark:*egs ark:out
nnet3-merge-egs --minibatch-size=4 ark:*egs ark:out
nnet3-merge-egs --minibatch-size=2 ark:*egs.txt ark:out
nnet3-shuffle-egs ark:*egs ark:out
nnet3-subset-egs ark:*egs.txt ark:out
nnet3-xvector-get-egs --num-pdfs=3 *ranges ark:*feats.ark ark:out ark:out2
nnet3-train --use-gpu=no *final.raw ark:merged out
nnet3-train --use-gpu=no *final.txt ark:merged out
nnet3-train --use-gpu=no final.raw ark:*egs out
nnet3-train --use-gpu=no final.raw ark:*egs.txt out
nnet3-train --use-gpu=no --read-cache=*cache final.raw ark:merged out
nnet3-acc-lda-stats --rand-prune=0.1 final.raw ark:*egs out
nnet3-combine --use-gpu=no final.raw trained.raw ark:*egs out
nnet3-compute-from-egs --use-gpu=no final.raw ark:*egs ark:out
nnet3-compute-prob *trained.raw ark:merged
nnet3-compute-prob final.raw ark:*egs.txt
nnet-get-feature-transform --dim=1 out *lda.bin
sum-lda-accs out lda.bin *lda.bin
# chain models
chain-est-phone-lm ark:*phones out
chain-get-supervision *chain.tree *chain.trans ark:*phone-lengths ark:out
chain-make-den-fst *chain.tree *chain.trans *phone-lm out out2
chain-make-num-fst-e2e *lang.mdl *lang.normalization ark:*graphs.fsts ark:out
chain-objf 4 *den ark:*supervisions ark:*network.out objf
nnet3-chain-acc-lda-stats chain.raw ark:*cegs.plain out
nnet3-chain-combine --use-gpu=no fst.den chain.raw chain.raw ark:*cegs.plain out
nnet3-chain-compute-post --use-gpu=no *chain.raw *fst.den ark:*mats.ark ark:out
nnet3-chain-compute-prob chain.raw fst.den ark:*cegs.plain
nnet3-chain-copy-egs ark:*cegs.plain ark:out
nnet3-chain-e2e-get-egs --num-frames=14,15,16 --num-frames-overlap=0 \
*lang.normalization ark:*feats.ark ark:*graphs.pdfs *lang.mdl ark:out
nnet3-chain-get-egs --num-frames=6 *normalization ark:*feats.ark ark:*supervisions ark:out
nnet3-chain-merge-egs --minibatch-size=2 ark:*cegs.like ark:out
nnet3-chain-normalize-egs *fst.all ark:*cegs.like ark:out
nnet3-chain-shuffle-egs ark:*cegs.plain ark:out
nnet3-chain-subset-egs --n=2 ark:*cegs.plain ark:out
nnet3-chain-train --use-gpu=no chain.raw *fst.den ark:*cegs.plain out
# chain models of several languages
nnet3-chain-add-post-to-egs --use-gpu=no --type=raw *chain.raw fst.den ark:*cegs.plain ark:out
nnet3-chain-add-post-to-egs --use-gpu=no --type=den *chain.raw *fst.den ark:*cegs.plain ark:out
nnet3-chain-combine2 --use-gpu=no {GRAPHS} *chain2.raw chain2.raw ark:*cegs.languages out
nnet3-chain-train2 --use-gpu=no *chain2.raw {GRAPHS} ark:*cegs.languages out
# discriminative training
nnet3-discriminative-compute-from-egs --use-gpu=no disc.raw ark:*degs.bin ark:out
nnet3-discriminative-compute-objf disc.mdl ark:*degs.bin
nnet3-discriminative-copy-egs --frame-shift=2 ark:*degs.bin ark:out
nnet3-discriminative-get-egs --num-frames=3 *disc.mdl ark:*mats.ark ark:*disc.lat ark:*disc.ali \
ark:out
nnet3-discriminative-merge-egs --minibatch-size=2 ark:*degs.single ark:out
nnet3-discriminative-shuffle-egs ark:*degs.bin ark:out
nnet3-discriminative-subset-egs --n=1 ark:*degs.bin ark:out
nnet3-discriminative-train --use-gpu=no disc.mdl ark:*degs.bin out
# alignments, transition models, trees
ali-to-pdf *final.mdl ark:*ali ark:out
ali-to-pdf final.mdl ark:*ali.txt ark:out
ali-to-phones --write-lengths=true *chain.mdl ark:*ali ark:out
ali-to-phones *decode.mdl ark:*decode.ali ark,t:out
ali-to-post ark:*ali ark:out
am-info *chain.trans
convert-ali *chain.mdl chain.mdl *chain.tree ark:*ali ark:out
copy-int-vector ark:*ali ark,t:out
copy-transition-model *final.mdl out
gmm-init-biphone *chain.topo 3 out out2
gmm-init-mono *chain.topo 3 out out2
nnet3-am-train-transitions *final.mdl ark:*ali out
post-to-pdf-post *final.mdl ark:*ali.post ark:out
post-to-smat --dim=5 ark:*post.ark ark:out
post-to-tacc *final.mdl ark:*ali.post out
tree-info *chain.tree
# features, matrices, vectors, sound
apply-cmvn --norm-vars=true --utt2spk=ark:*utt2spk ark:*cmvn.speakers ark:*feats.ark ark:out
apply-cmvn-online --spk2utt=ark:*spk2utt *cmvn.global ark:*feats.ark ark:out
apply-cmvn-sliding ark:*feats.ark ark:out
compute-cmvn-stats ark:*feats.ark out
compute-vad --vad-energy-threshold=-9 ark:*feats.ark ark:out
concat-feats *matrix.bin *matrix.txt out
copy-feats --compress=true ark:*feats.ark ark,scp:out,out2
copy-matrix --scale=2 *matrix64.bin out
copy-matrix ark:*mats.ark ark,t:out
copy-vector *vector.txt out
copy-vector ark:*vecs.txt ark:out
feat-to-dim ark:*mats.ark ark,t:out
feat-to-len ark:*mats.ark ark,t:out
ivector-mean ark:*spk2utt ark:*vecs.txt ark:out ark:out2
matrix-dim *matrix.cm2
matrix-dim ark:*mats.ark
matrix-sum --average=true *matrix.bin *matrix.txt out
matrix-sum ark:*cmvn.ark out
matrix-sum-rows ark:*mats.ark ark:out
modify-cmvn-stats --convert-to-mean-and-var=true 0:2 ark:*cmvn.ark ark:out
paste-feats --length-tolerance=2 ark:*feats.ark ark:*targets.ark ark:out
select-feats 2,0-1 ark:*feats.ark ark:out
select-voiced-frames ark:*feats.ark ark:*vad.ark ark:out
shift-feats --shift=-1 ark:*mats.ark ark:out
splice-feats ark:*feats.ark ark:out
subsample-feats --n=-2 ark:*mats.ark ark:out
subset-feats --include=*list ark:*feats.ark ark:out
transform-feats *matrix.bin ark:*feats.ark ark:out
vector-sum ark:*vecs.txt ark:vecs.txt ark:out
vector-sum *vector.bin *vector.txt out
extract-segments ark:*wavs.ark *segments ark:out
wav-copy ark:*wavs.ark ark:out
wav-perturb-speed *copies ark:*wavs.ark ark:out
wav-to-duration ark:*wavs.ark ark:out
# dictionaries, language models, graphs
arpa2fst --keep-symbols=true --write-symbol-table=out2 *grammar.arpa out
arpa2fst --disambig-symbol=#0 --read-symbol-table=*words.txt grammar.arpa out
compile-train-graphs *lang.tree *lang.mdl *lang/L.fst ark:*transcripts ark:out
fstcopy ark:*fsts.bin ark:out
nnet3-make-graph lang *lang.tree *lang.mdl graph
nnet3-make-lm --transcripts=*text --vocab=*words.txt --heldout=*text out
nnet3-text-to-phones lang *text out
nnet3-check-data data *lexicon.txt
nnet3-check-data data *lexiconp.txt
# decoding
compute-wer --text ark:*decode.ref ark:decode.hyp
lattice-align-phones --output-error-lats=false *decode.mdl ark:*decode.lat ark:out
lattice-copy --write-compact=false ark:*decode.lat ark,t:out
nnet3-align-compiled --use-gpu=no *decode.mdl ark:decode.fsts ark:decode.feats ark:out
nnet3-align-compiled --use-gpu=no decode.mdl ark:*decode.fsts ark:*decode.feats ark:out ark:out2
nnet3-latgen-faster *decode.mdl *decode.fst ark:*decode.feats ark:out ark:out2
nnet3-latgen-faster decode.mdl *decode.const ark:decode.feats ark:out ark:out2
nnet3-latgen-faster decode.mdl ark:*decode.fsts ark:decode.feats ark:out ark:out2
nnet3-latgen-faster-batch --use-gpu=no decode.mdl *decode.fst ark:decode.feats ark:out
"""
"""Command lines in which each file with a star stands for BAD in turn."""

_OF_LATTICES = """
lattice-add-penalty --word-ins-penalty=1.0 ark:*FILE ark:out
lattice-best-path ark:*FILE ark:out ark:out2
lattice-mbr-decode ark:*FILE ark:out ark:out2 ark:out3 ark:out4
lattice-scale --acoustic-scale=0.1 ark:*FILE ark:out
lattice-to-nbest --n=3 ark:*FILE ark:out
"""
_OF_COMPONENTS = """
nnet3-copy *FILE out
nnet3-info *FILE
nnet3-compile *FILE REQUEST out
nnet3-copy --prepare-for-test=true *FILE out
"""
_REQUESTS = {
    "TdnnComponent": "wide-request",
    "StatisticsExtractionComponent": "halved-request",
}
_OF_FOLDERS = {
    "dict": "nnet3-prepare-lang FOLDER <UNK> made-lang",
    "lang": "nnet3-make-graph FOLDER lang.tree lang.mdl graph",
}
"""What reads a folder of which one file is BAD."""
_OF_BAD_GRAPHS = (
    f"nnet3-chain-train2 --use-gpu=no chain2.raw {BAD_GRAPHS} ark:cegs.languages out",
    f"nnet3-chain-combine2 --use-gpu=no {BAD_GRAPHS} chain2.raw chain2.raw ark:cegs.languages out",
)


def _command_lines() -> Iterator[str]:
    yield from _COMMANDS.splitlines()
    for file in ("decode.lat", "compact.lat.txt", "plain.lat.txt"):
        yield from _OF_LATTICES.replace("FILE", file).splitlines()
    for kind in ZOO:
        commands = _OF_COMPONENTS.replace("REQUEST", _REQUESTS.get(kind, "zoo-request"))
        for form in ("raw", "txt"):
            yield from commands.replace("FILE", f"{kind}.{form}").splitlines()


def _targets() -> Iterator[tuple[str, tuple[str, ...]]]:
    """(file, command line in which BAD stands for it)."""
    for line in _command_lines():
        words = [] if line.startswith("#") else line.split()
        for at, word in enumerate(words):
            before, star, name = word.partition("*")
            if star:
                others = [other.replace("*", "") for other in words]
                yield name, (*others[:at], f"{before}BAD", *others[at + 1 :])
    for folder, names in DAMAGED_FOLDERS.items():
        for name in names:
            command = "nnet3-text-to-phones FOLDER text out"
            if "align" not in name:
                command = _OF_FOLDERS[folder]
            bad = f"{folder}.{name.rpartition('/')[2]}"
            yield f"{folder}/{name}", tuple(command.replace("FOLDER", bad).split())
    for command in _OF_BAD_GRAPHS:
        yield "fst.den", tuple(command.split())
    yield from recognizer_targets()


TARGETS: dict[str, list[tuple[str, ...]]] = {}
"""File -> the command lines that read it, `BAD` standing for its damaged copy."""

for _file, _command in _targets():
    TARGETS.setdefault(_file, []).append(_command)
