"""Which program reads which file: command lines in which one word is the damaged file."""

from support.component_zoo import ZOO
from support.fuzz_chain2 import chain2_targets
from support.fuzz_recognizer import recognizer_targets
from support.fuzz_speech_targets import speech_targets

_NO_GPU = "--use-gpu=no"
_ONLINE = ("--online-ivectors=ark:ivectors.ark", "--online-ivector-period=10")
_CONTEXT = ("--num-pdfs=5", "--left-context=4", "--right-context=1", "--num-frames=4")

_REQUESTS = {
    "TdnnComponent": "wide-request",
    "StatisticsExtractionComponent": "halved-request",
}


def _program_run(program: str) -> tuple[str, ...]:
    derivs = ("--output-derivs=ark:derivs.ark", "--input-derivs=ark:out2")
    return ("nnet3-compute", _NO_GPU, f"--computation={program}", *derivs, "final.raw")


_LATTICE_PROGRAMS: tuple[tuple[str, ...], ...] = (
    ("lattice-scale", "--acoustic-scale=0.1", "ark:BAD", "ark:out"),
    ("lattice-add-penalty", "--word-ins-penalty=1.0", "ark:BAD", "ark:out"),
    ("lattice-best-path", "ark:BAD", "ark:out", "ark:out2"),
    ("lattice-to-nbest", "--n=3", "ark:BAD", "ark:out"),
    ("lattice-mbr-decode", "ark:BAD", "ark:out", "ark:out2", "ark:out3", "ark:out4"),
    ("lattice-copy", "--write-compact=false", "ark:BAD", "ark,t:out"),
    ("lattice-align-phones", "--output-error-lats=false", "decode.mdl", "ark:BAD", "ark:out"),
)
_ALIGN = ("nnet3-align-compiled", _NO_GPU)


def _decoding(model: str, graph: str, features: str) -> tuple[str, ...]:
    return ("nnet3-latgen-faster", model, graph, features, "ark:out", "ark:out2")


TARGETS: dict[str, list[tuple[str, ...]]] = {
    "net.config": [("nnet3-init", "BAD", "out")],
    "layers.xconfig": [("nnet3-xconfig-to-configs", "--xconfig-file=BAD", "--config-dir=configs")],
    "edits": [("nnet3-copy", "--edits-config=BAD", "final.raw", "out")],
    "final.raw": [
        ("nnet3-copy", "--binary=false", "BAD", "out"),
        ("nnet3-info", "BAD"),
        ("nnet3-quantize", "BAD", "out"),
        ("nnet3-compute", _NO_GPU, *_ONLINE, "BAD", "ark:feats.ark", "ark:out"),
        ("nnet3-train", _NO_GPU, "BAD", "ark:merged", "out"),
    ],
    "final.txt": [
        ("nnet3-copy", "BAD", "out"),
        ("nnet3-compile", "BAD", "request", "out"),
        ("nnet3-make-request", "--num-frames=5", "BAD", "out"),
        ("nnet3-train", _NO_GPU, "BAD", "ark:merged", "out"),
        ("nnet3-average", "final.raw", "BAD", "out"),
        ("nnet3-show-progress", _NO_GPU, "final.raw", "BAD"),
    ],
    "trained.raw": [
        ("nnet3-copy", "--prepare-for-test=true", "BAD", "out"),
        ("nnet3-compute-prob", "BAD", "ark:merged"),
    ],
    "final.mdl": [("nnet3-am-copy", "BAD", "out"), ("nnet3-am-info", "BAD")],
    "mdl.txt": [
        ("nnet3-am-copy", "BAD", "out"),
        ("nnet3-am-adjust-priors", "BAD", "priors", "out"),
        ("nnet3-compute", _NO_GPU, "--use-priors=true", "BAD", "ark:feats.ark", "ark:out"),
    ],
    "topo": [("nnet3-am-init", "tree", "BAD", "mono.raw", "out")],
    "tree": [("nnet3-am-init", "BAD", "topo", "mono.raw", "out")],
    "priors": [("nnet3-am-adjust-priors", "final.mdl", "BAD", "out")],
    "request": [("nnet3-compile", "final.raw", "BAD", "out")],
    "request.txt": [("nnet3-compile", "final.raw", "BAD", "out")],
    "program": [(*_program_run("BAD"), "ark:inputs.ark", "ark:out")],
    "program.txt": [(*_program_run("BAD"), "ark:inputs.ark", "ark:out")],
    "inputs.ark": [(*_program_run("program"), "ark:BAD", "ark:out")],
    "cache": [("nnet3-train", _NO_GPU, "--read-cache=BAD", "final.raw", "ark:merged", "out")],
    "egs": [
        ("nnet3-make-request", "--egs=ark:BAD", "final.raw", "out"),
        ("nnet3-copy-egs", "ark:BAD", "ark:out"),
        ("nnet3-merge-egs", "--minibatch-size=4", "ark:BAD", "ark:out"),
        ("nnet3-shuffle-egs", "ark:BAD", "ark:out"),
        ("nnet3-train", _NO_GPU, "final.raw", "ark:BAD", "out"),
        ("nnet3-compute-from-egs", _NO_GPU, "final.raw", "ark:BAD", "ark:out"),
        ("nnet3-acc-lda-stats", "--rand-prune=0.1", "final.raw", "ark:BAD", "out"),
        ("nnet3-combine", _NO_GPU, "final.raw", "trained.raw", "ark:BAD", "out"),
    ],
    "cegs.plain": [
        ("nnet3-chain-train", _NO_GPU, "chain.raw", "fst.den", "ark:BAD", "out"),
        ("nnet3-chain-copy-egs", "ark:BAD", "ark:out"),
        ("nnet3-chain-subset-egs", "--n=2", "ark:BAD", "ark:out"),
        ("nnet3-chain-shuffle-egs", "ark:BAD", "ark:out"),
        ("nnet3-chain-compute-prob", "chain.raw", "fst.den", "ark:BAD"),
        ("nnet3-chain-combine", _NO_GPU, "fst.den", "chain.raw", "chain.raw", "ark:BAD", "out"),
        ("nnet3-chain-acc-lda-stats", "chain.raw", "ark:BAD", "out"),
    ],
    "degs.bin": [
        ("nnet3-discriminative-train", _NO_GPU, "disc.mdl", "ark:BAD", "out"),
        ("nnet3-discriminative-compute-objf", "disc.mdl", "ark:BAD"),
        ("nnet3-discriminative-copy-egs", "--frame-shift=2", "ark:BAD", "ark:out"),
        ("nnet3-discriminative-shuffle-egs", "ark:BAD", "ark:out"),
        ("nnet3-discriminative-compute-from-egs", _NO_GPU, "disc.raw", "ark:BAD", "ark:out"),
    ],
    "fst.den": [
        ("nnet3-chain-train", _NO_GPU, "chain.raw", "BAD", "ark:cegs.plain", "out"),
    ],
    "decode.mdl": [
        _decoding("BAD", "decode.fst", "ark:decode.feats"),
        (*_ALIGN, "BAD", "ark:decode.fsts", "ark:decode.feats", "ark:out"),
        ("lattice-align-phones", "--output-error-lats=false", "BAD", "ark:decode.lat", "ark:out"),
        ("ali-to-phones", "BAD", "ark:decode.ali", "ark,t:out"),
    ],
    "decode.fst": [
        _decoding("decode.mdl", "BAD", "ark:decode.feats"),
        (
            *("nnet3-latgen-faster-batch", _NO_GPU, "decode.mdl", "BAD", "ark:decode.feats"),
            "ark:out",
        ),
    ],
    "decode.const": [_decoding("decode.mdl", "BAD", "ark:decode.feats")],
    "decode.fsts": [
        _decoding("decode.mdl", "ark:BAD", "ark:decode.feats"),
        (*_ALIGN, "decode.mdl", "ark:BAD", "ark:decode.feats", "ark:out", "ark:out2"),
    ],
    "decode.feats": [
        _decoding("decode.mdl", "decode.fst", "ark:BAD"),
        (*_ALIGN, "decode.mdl", "ark:decode.fsts", "ark:BAD", "ark:out", "ark:out2"),
    ],
    "decode.ali": [("ali-to-phones", "decode.mdl", "ark:BAD", "ark,t:out")],
    "decode.ref": [("compute-wer", "--text", "ark:BAD", "ark:decode.hyp")],
    "decode.lat": list(_LATTICE_PROGRAMS),
    "compact.lat.txt": list(_LATTICE_PROGRAMS[:5]),
    "plain.lat.txt": list(_LATTICE_PROGRAMS[:5]),
    "fsts.bin": [("fstcopy", "ark:BAD", "ark:out")],
    "lda.bin": [
        ("nnet-get-feature-transform", "--dim=1", "out", "BAD"),
        ("sum-lda-accs", "out", "lda.bin", "BAD"),
    ],
    "segments": [("extract-segments", "ark:wavs.ark", "BAD", "ark:out")],
    "copies": [("wav-perturb-speed", "BAD", "ark:wavs.ark", "ark:out")],
    "wavs.ark": [
        ("wav-copy", "ark:BAD", "ark:out"),
        ("wav-to-duration", "ark:BAD", "ark:out"),
        ("wav-perturb-speed", "copies", "ark:BAD", "ark:out"),
        ("extract-segments", "ark:BAD", "segments", "ark:out"),
    ],
    "egs.txt": [
        ("nnet3-copy-egs", "--frame=0", "--left-context=1", "ark:BAD", "ark:out"),
        ("nnet3-merge-egs", "--minibatch-size=2", "ark:BAD", "ark:out"),
        ("nnet3-compute-prob", "final.raw", "ark:BAD"),
        ("nnet3-subset-egs", "ark:BAD", "ark:out"),
        ("nnet3-train", _NO_GPU, "final.raw", "ark:BAD", "out"),
    ],
    "feats.ark": [
        ("nnet3-compute", _NO_GPU, *_ONLINE, "final.raw", "ark:BAD", "ark:out"),
        ("nnet3-get-egs", *_CONTEXT, *_ONLINE, "ark:BAD", "ark:post.ark", "ark:out"),
        ("nnet3-compute-batch", _NO_GPU, *_ONLINE, "final.raw", "ark:BAD", "ark:out"),
        ("nnet3-get-egs-simple", "input=ark:BAD", "output=ark:targets.ark", "ark:out"),
        ("compute-cmvn-stats", "ark:BAD", "out"),
        ("apply-cmvn-sliding", "ark:BAD", "ark:out"),
        ("splice-feats", "ark:BAD", "ark:out"),
        ("copy-feats", "--compress=true", "ark:BAD", "ark,scp:out,out2"),
    ],
    "feats.txt": [("nnet3-compute", _NO_GPU, *_ONLINE, "final.raw", "ark:BAD", "ark:out")],
    "ivectors.ark": [
        (
            *("nnet3-compute", _NO_GPU, "--online-ivectors=ark:BAD", _ONLINE[1], "final.raw"),
            *("ark:feats.ark", "ark:out"),
        )
    ],
    "post.ark": [("nnet3-get-egs", *_CONTEXT, "ark:feats.ark", "ark:BAD", "ark:out")],
    "post.txt": [("nnet3-get-egs", *_CONTEXT, "ark:feats.ark", "ark:BAD", "ark:out")],
    "targets.ark": [
        (
            *("nnet3-get-egs-dense-targets", "--num-targets=5", "--num-frames=4"),
            *("ark:feats.ark", "ark:BAD", "ark:out"),
        )
    ],
    **{
        f"{kind}.{form}": [
            ("nnet3-copy", "BAD", "out"),
            ("nnet3-info", "BAD"),
            ("nnet3-compile", "BAD", _REQUESTS.get(kind, "zoo-request"), "out"),
            ("nnet3-copy", "--prepare-for-test=true", "BAD", "out"),
        ]
        for kind in ZOO
        for form in ("raw", "txt")
    },
}
"""File -> the command lines that read it, `BAD` standing for its damaged copy."""

for _file, _command in (*speech_targets(), *chain2_targets(), *recognizer_targets()):
    TARGETS.setdefault(_file, []).append(_command)
