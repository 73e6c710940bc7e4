"""Good files of every kind in the working directory, and how to run a program on them."""

import contextlib
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import numpy as np

from nnet3tools.cli.programs import main_of
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.io.files import open_output
from nnet3tools.io.holders import GENERAL_MATRIX, INT32_VECTOR, POSTERIOR, TOKEN
from nnet3tools.io.posterior import Posterior
from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.nnet.model_file import write_nnet
from support.component_zoo import ZOO, model_of
from support.fuzz_chain_samples import make_chain_samples
from support.fuzz_decoding_samples import make_decoding_samples
from support.fuzz_recognizer import make_recognizer_samples
from support.fuzz_samples import make_samples
from support.fuzz_speech_samples import make_speech_samples
from support.programs import must, write_table

CONFIG = """input-node name=input dim=3
input-node name=ivector dim=2
component name=a type=NaturalGradientAffineComponent input-dim=11 output-dim=4
component name=relu type=RectifiedLinearComponent dim=4 self-repair-scale=1e-5
component name=bn type=BatchNormComponent dim=4
component name=tdnn type=TdnnComponent input-dim=4 output-dim=4 time-offsets=-1,0
component name=b type=LinearComponent input-dim=8 output-dim=5 orthonormal-constraint=1.0
component name=soft type=LogSoftmaxComponent dim=5
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1), \
ReplaceIndex(ivector, t, 0))
component-node name=relu component=relu input=a
component-node name=bn component=bn input=Sum(relu, Scale(0.5, a))
component-node name=tdnn component=tdnn input=bn
component-node name=b component=b input=Append(tdnn, IfDefined(Offset(bn, -2)))
component-node name=soft component=soft input=b
output-node name=output input=soft objective=linear
"""
LAYERS = """input name=ivector dim=3
input name=input dim=4  # features
fixed-affine-layer name=lda input=Append(-1,0,ReplaceIndex(ivector, t, 0)) \
affine-transform-file=lda.mat delay=1
relu-batchnorm-layer name=a dim=8 input=Append(input@-1,[-1]) ng-affine-options="rank-in=4"
tdnnf-layer name=b dim=8 bottleneck-dim=4 time-stride=3
conv-relu-batchnorm-layer name=c height-in=4 height-out=4 num-filters-out=2 time-offsets=-1,0,1 \
height-offsets=-1,0,1
fast-lstmp-layer name=d cell-dim=8 decay-time=20 input=Sum(b, Scale(0.5, c))
output-layer name=output dim=5 input=Append(a, d) max-change=1.5
"""

TOPOLOGY = """<Topology> <TopologyEntry> <ForPhones> 1 </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.5 <Transition> 1 0.5 </State> <State> 1 </State>
</TopologyEntry> </Topology>
"""
TREE = "ContextDependency 1 0 ToPdf TE 0 2 ( NULL TE -1 1 ( CE 3 ) ) EndContextDependency "


@dataclass
class Outcome:
    """How a program ended."""

    status: int
    log: str
    errors: list[str] = field(default_factory=list)
    """The lines that a failing program ends with: one."""
    skipped: list[str] = field(default_factory=list)
    """Lines about utterances and examples that the program went on without."""
    crash: BaseException | None = None


def run(name: str, *args: str) -> Outcome:
    """Run a program in this process; a Python exception that gets out of it is its crash.

    A last argument "<FILE" is the program's standard input, "-", if there is that file.
    """
    log, crash, status = io.StringIO(), None, -1
    out = io.TextIOWrapper(io.BytesIO())
    main, stdin = main_of(name), sys.stdin
    if args and str(args[-1]).startswith("<") and Path(args[-1][1:]).is_file():
        *args, source = args
        args = (*args, "-")
        stdin = io.TextIOWrapper(io.BytesIO(Path(source[1:]).read_bytes()))
    with (
        contextlib.redirect_stderr(log),
        contextlib.redirect_stdout(out),
        mock.patch.object(sys, "stdin", stdin),
    ):
        try:
            status = main([*map(str, args)])
        except Exception as error:  # whatever it is, it is what the tests look for
            crash = error
    text = log.getvalue()
    errors = [line for line in text.splitlines() if line.startswith("ERROR (")]
    skipped = [line for line in errors if line.endswith("(skipped)")]
    return Outcome(status, text, [e for e in errors if e not in skipped], skipped, crash)


def _tables() -> None:
    rng = np.random.default_rng(3)
    frames = {f"u{i}": 14 + i for i in range(3)}
    feats = {u: rng.normal(size=(n, 3)).astype(np.float32) for u, n in frames.items()}
    write_table("ark:feats.ark", feats)
    write_table("ark,t:feats.txt", feats)
    targets = {u: rng.normal(size=(n, 5)).astype(np.float32) for u, n in frames.items()}
    write_table("ark:targets.ark", targets, GENERAL_MATRIX)
    ivectors = {u: rng.normal(size=(1 + n // 10, 2)).astype(np.float32) for u, n in frames.items()}
    write_table("ark:ivectors.ark", ivectors)
    ones = {u: np.ones(n) for u, n in frames.items()}
    posts = {
        u: Posterior.from_counts(ones[u].astype(int), rng.integers(0, 5, n), ones[u])
        for u, n in frames.items()
    }
    write_table("ark:post.ark", posts, POSTERIOR)
    write_table("ark,t:post.txt", posts, POSTERIOR)
    write_table("ark,t:utt2spk", dict.fromkeys(frames, "speaker"), TOKEN)
    write_table(
        "ark:lengths", {u: np.array([n], np.int32) for u, n in frames.items()}, INT32_VECTOR
    )


def _request() -> None:
    n = np.arange(2)[:, None]
    request = ComputationRequest(
        [
            IoSpecification("input", make_indexes(n, np.arange(-2, 6)).reshape(-1, 3), True),
            IoSpecification("ivector", make_indexes(np.arange(2), 0)),
        ],
        [IoSpecification("output", make_indexes(n, np.arange(3)).reshape(-1, 3), True)],
        need_model_derivative=True,
        store_component_stats=True,
    )
    for name, binary in (("request", True), ("request.txt", False)):
        with open_output(name, binary) as writer:
            request.write(writer)
    rng = np.random.default_rng(4)
    inputs = {"input": rng.normal(size=(16, 3)), "ivector": rng.normal(size=(2, 2))}
    write_table("ark:inputs.ark", {k: v.astype(np.float32) for k, v in inputs.items()})
    derivs = {"output": rng.normal(size=(6, 5)).astype(np.float32)}
    write_table("ark:derivs.ark", derivs)


def _zoo_requests() -> None:
    """Input and output for frames 0 to 3: what most networks of one component can compute.

    One wants frames around those of the output, one gives an output for each second frame.
    """
    for name, inputs, outputs in (
        ("zoo-request", range(4), range(4)),
        ("wide-request", range(-4, 8), range(4)),
        ("halved-request", range(4), range(0, 4, 2)),
    ):
        specs = [
            IoSpecification(node, make_indexes(0, np.array(times)), True)
            for node, times in (("input", inputs), ("output", outputs))
        ]
        with open_output(name) as writer:
            ComputationRequest(specs[:1], specs[1:], need_model_derivative=True).write(writer)


@contextlib.contextmanager
def in_corpus(folder: Path) -> Iterator[Path]:
    """In the `with` block `folder` is the working directory, with a good file of every kind."""
    with contextlib.chdir(folder):
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            _make_corpus()
        yield folder


def _make_corpus() -> None:
    Path("net.config").write_text(CONFIG)
    Path("layers.xconfig").write_text(LAYERS)
    Path("topo").write_text(TOPOLOGY)
    Path("tree").write_text(TREE)
    Path("edits").write_text("set-learning-rate name=a learning-rate=0.1\nremove-orphans\n")
    Path("priors").write_text(" [ 0.2 0.2 0.1 0.5 ]\n")
    _tables()
    _request()
    must("nnet3-init", "net.config", "final.raw")
    must("nnet3-copy", "--binary=false", "final.raw", "final.txt")
    must("nnet3-compile", "final.raw", "request", "program")
    must("nnet3-compile", "--binary=false", "final.raw", "request", "program.txt")
    egs_options = ("--num-pdfs=5", "--left-context=4", "--right-context=1", "--num-frames=4")
    tables = ("ark:feats.ark", "ark:post.ark")
    online = ("--online-ivectors=ark:ivectors.ark", "--online-ivector-period=10")
    must("nnet3-get-egs", *egs_options, *online, *tables, "ark:egs")
    must("nnet3-copy-egs", "ark:egs", "ark,t:egs.txt")
    must("nnet3-merge-egs", "--minibatch-size=4", "ark:egs", "ark:merged")
    train = ("--use-gpu=no", "--write-cache=cache", "final.raw", "ark:merged", "trained.raw")
    must("nnet3-train", *train)
    Path("mono.config").write_text(_without_ivector(CONFIG))
    must("nnet3-init", "mono.config", "mono.raw")
    must("nnet3-am-init", "tree", "topo", "mono.raw", "final.mdl")
    must("nnet3-am-copy", "--binary=false", "final.mdl", "mdl.txt")
    _zoo_requests()
    for kind in ZOO:
        for binary in (False, True):
            write_nnet(model_of(kind), f"{kind}.{'raw' if binary else 'txt'}", binary)
    make_samples()
    make_chain_samples()
    make_decoding_samples()
    make_speech_samples()
    make_recognizer_samples()


def _without_ivector(config: str) -> str:
    lines = [line for line in config.splitlines() if "ivector dim" not in line]
    text = "\n".join(lines).replace(", ReplaceIndex(ivector, t, 0)", "")
    text = text.replace("input-dim=11", "input-dim=9")
    return text.replace("output-dim=5", "output-dim=4").replace("dim=5", "dim=4")
