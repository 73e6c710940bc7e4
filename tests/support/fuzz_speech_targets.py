"""Programs on features, alignments, chain models and dictionaries: what each of them reads."""

from collections.abc import Iterator

from support.fuzz_speech_samples import DAMAGED_FOLDERS

_NO_GPU = "--use-gpu=no"

_COMMANDS = (
    # alignments, transition models, trees
    "ali-to-pdf *final.mdl ark:*ali ark:out",
    "ali-to-pdf final.mdl ark:*ali.txt ark:out",
    "ali-to-phones --write-lengths=true *chain.mdl ark:*ali ark:out",
    "ali-to-post ark:*ali ark:out",
    "am-info *chain.trans",
    "copy-int-vector ark:*ali ark,t:out",
    "copy-transition-model *final.mdl out",
    "gmm-init-biphone *chain.topo 3 out out2",
    "gmm-init-mono *chain.topo 3 out out2",
    "nnet3-am-train-transitions *final.mdl ark:*ali out",
    "post-to-pdf-post *final.mdl ark:*ali.post ark:out",
    "post-to-smat --dim=5 ark:*post.ark ark:out",
    "post-to-tacc *final.mdl ark:*ali.post out",
    "tree-info *chain.tree",
    # features, matrices, vectors
    "apply-cmvn --norm-vars=true --utt2spk=ark:*utt2spk ark:*cmvn.speakers ark:*feats.ark ark:out",
    "apply-cmvn-online --spk2utt=ark:*spk2utt *cmvn.global ark:*feats.ark ark:out",
    "convert-ali *chain.mdl chain.mdl *chain.tree ark:*ali ark:out",
    "compute-vad --vad-energy-threshold=-9 ark:*feats.ark ark:out",
    "concat-feats *matrix.bin *matrix.txt out",
    "copy-matrix --scale=2 *matrix64.bin out",
    "copy-matrix ark:*mats.ark ark,t:out",
    "copy-vector *vector.txt out",
    "copy-vector ark:*vecs.txt ark:out",
    "feat-to-dim ark:*mats.ark ark,t:out",
    "feat-to-len ark:*mats.ark ark,t:out",
    "ivector-mean ark:*spk2utt ark:*vecs.txt ark:out ark:out2",
    "matrix-dim *matrix.cm2",
    "matrix-dim ark:*mats.ark",
    "matrix-sum --average=true *matrix.bin *matrix.txt out",
    "matrix-sum ark:*cmvn.ark out",
    "matrix-sum-rows ark:*mats.ark ark:out",
    "modify-cmvn-stats --convert-to-mean-and-var=true 0:2 ark:*cmvn.ark ark:out",
    "paste-feats --length-tolerance=2 ark:*feats.ark ark:*targets.ark ark:out",
    "select-feats 2,0-1 ark:*feats.ark ark:out",
    "select-voiced-frames ark:*feats.ark ark:*vad.ark ark:out",
    "shift-feats --shift=-1 ark:*mats.ark ark:out",
    "subsample-feats --n=-2 ark:*mats.ark ark:out",
    "subset-feats --include=*list ark:*feats.ark ark:out",
    "transform-feats *matrix.bin ark:*feats.ark ark:out",
    "vector-sum ark:*vecs.txt ark:vecs.txt ark:out",
    "vector-sum *vector.bin *vector.txt out",
    # examples, networks
    "nnet3-computation-info *final.raw *program",
    "nnet3-egs-augment-image --horizontal-shift=0.2 --num-channels=3 ark:*egs ark:out",
    f"nnet3-xvector-compute {_NO_GPU} *xvector.raw ark:*feats.ark ark:out",
    f"nnet3-xvector-compute-batched {_NO_GPU} *xvector.raw ark:*feats.ark ark:out",
    "nnet3-xvector-get-egs --num-pdfs=3 *ranges ark:*feats.ark ark:out ark:out2",
    # chain models
    "chain-est-phone-lm ark:*phones out",
    "chain-get-supervision *chain.tree *chain.trans ark:*phone-lengths ark:out",
    "chain-make-den-fst *chain.tree *chain.trans *phone-lm out out2",
    "chain-make-num-fst-e2e *lang.mdl *lang.normalization ark:*graphs.fsts ark:out",
    "chain-objf 4 *den ark:*supervisions ark:*network.out objf",
    f"nnet3-chain-compute-post {_NO_GPU} *chain.raw *fst.den ark:*mats.ark ark:out",
    "nnet3-chain-e2e-get-egs --num-frames=14,15,16 --num-frames-overlap=0 "
    "*lang.normalization ark:*feats.ark ark:*graphs.pdfs *lang.mdl ark:out",
    "nnet3-chain-get-egs --num-frames=6 *normalization ark:*feats.ark ark:*supervisions ark:out",
    "nnet3-chain-merge-egs --minibatch-size=2 ark:*cegs.like ark:out",
    "nnet3-chain-normalize-egs *fst.all ark:*cegs.like ark:out",
    "nnet3-discriminative-get-egs --num-frames=3 *disc.mdl ark:*mats.ark ark:*disc.lat "
    "ark:*disc.ali ark:out",
    "nnet3-discriminative-merge-egs --minibatch-size=2 ark:*degs.single ark:out",
    "nnet3-discriminative-subset-egs --n=1 ark:*degs.bin ark:out",
    # dictionaries, language models, graphs
    "arpa2fst --keep-symbols=true --write-symbol-table=out2 *grammar.arpa out",
    "arpa2fst --disambig-symbol=#0 --read-symbol-table=*words.txt grammar.arpa out",
    "compile-train-graphs *lang.tree *lang.mdl *lang/L.fst ark:*transcripts ark:out",
    "nnet3-make-graph lang *lang.tree *lang.mdl graph",
    "nnet3-make-lm --transcripts=*text --vocab=*words.txt --heldout=*text out",
    "nnet3-text-to-phones lang *text out",
)
"""Command lines in which each file with a star stands for BAD in turn."""

_IN_FOLDERS = {
    "dict": ("nnet3-prepare-lang", "{}", "<UNK>", "made-lang"),
    "lang": ("nnet3-make-graph", "{}", "lang.tree", "lang.mdl", "graph"),
}
"""What reads a folder of which one file is BAD."""
_TEXT_TO_PHONES = ("nnet3-text-to-phones", "{}", "text", "out")


def speech_targets() -> Iterator[tuple[str, tuple[str, ...]]]:
    """(file, command line in which BAD stands for it)."""
    for command in _COMMANDS:
        yield from _each_starred(command.split())
    for folder, names in DAMAGED_FOLDERS.items():
        for name in names:
            words = _TEXT_TO_PHONES if "align" in name else _IN_FOLDERS[folder]
            bad = f"{folder}.{name.rpartition('/')[2]}"
            yield f"{folder}/{name}", tuple(word.format(bad) for word in words)


def _each_starred(words: list[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for at, word in enumerate(words):
        before, star, name = word.partition("*")
        if star:
            others = [other.replace("*", "") for other in words]
            yield name, (*others[:at], f"{before}BAD", *others[at + 1 :])
