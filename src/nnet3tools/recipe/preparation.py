"""The stages before training: the first network, examples, the LDA-like transform, model 0."""

from __future__ import annotations

import math
from pathlib import Path

from nnet3tools.errors import DataError
from nnet3tools.recipe.data_dir import read_lines
from nnet3tools.recipe.egs_dir import EgsDir
from nnet3tools.recipe.experiment import Experiment
from nnet3tools.recipe.jobs import Job, pipe_text
from nnet3tools.recipe.plan import CopyFile, Jobs, Later, Link, Remove, Stage, Step, WriteText
from nnet3tools.recipe.schedules import Iterations


class Preparation:
    """Plans the stages before training on frame targets; subclasses plan for other objectives."""

    def __init__(self, experiment: Experiment) -> None:
        self._e = experiment

    def early_copies(self) -> list[CopyFile | WriteText]:
        """Steps that copy the alignments' files which decoding with an acoustic model needs."""
        e = self._e
        if e.am is None:
            return []
        ali = Path(e.am.ali_dir)
        names = [name for name in ("phones.txt", "tree") if (ali / name).is_file()]
        return [
            *(CopyFile(ali / name, e.dir / name) for name in names),
            WriteText(e.dir / "num_jobs", str(e.num_ali_jobs())),
        ]

    def schedule_files(self, schedule: Iterations) -> list[WriteText]:
        """Steps that write the length of the schedule; here none."""
        return []

    def before_egs(self) -> list[Stage]:
        """The stages up to the making of examples, which is the last of them."""
        e = self._e
        shift = 0 if e.am is None else -1  # acoustic models' stages have numbers one lower
        stages = []
        if e.has_init_config:
            stages.append(init_stage(e, -4 + shift))
        if not e.options.egs.dir:
            stages.append(egs_stage(e, -3 + shift))
        return stages

    def with_egs(self, egs: EgsDir) -> list[Stage]:
        """The stages between the making of examples and model 0."""
        e = self._e
        stages = []
        if e.has_init_config:
            stages.append(lda_stage(e, egs, -2 if e.am is None else -3))
        if e.am is not None and not e.options.trainer.input_model:
            stages.append(_prior_stage(e))
        stages.append(_first_model_stage(e))
        return stages


def init_stage(e: Experiment, number: int) -> Stage:
    """The stage that builds the part of the network which feeds the LDA-like transform."""
    words = ("nnet3-init", "--srand=-2", f"{e.dir}/configs/init.config", f"{e.dir}/init.raw")
    out = e.dir / "init.raw"
    return Stage(
        number, "the first part of the network", (e.step("nnet_init", words, out=out),), (out,)
    )


def egs_stage(e: Experiment, number: int) -> Stage:
    """The stage that makes examples; its steps are determined when it runs."""
    egs = e.egs_path
    subsets = ("combine", "valid_diagnostic", "train_diagnostic")
    outputs = tuple(egs / e.names.subset(name) for name in subsets)

    def steps() -> list[Step]:
        making = e.egs_making()
        num_frames = making.data.num_frames()
        parts, files = making.lists()
        found: list[Step] = [
            *files,
            *making.info(num_frames, making.data.feature_dim()),
            *making.cmvn_files(),
            *making.targets.steps_before(egs),
            Later(lambda: making.scripts(parts)),
        ]
        stage = e.options.egs.stage
        if stage <= 3:
            found += making.subsets()
            if e.options.trainer.optimization.do_final_combination:
                found.append(_combination_check(e))
        if stage <= 4:
            found += making.everything(num_frames)
        if stage <= 5:
            found += making.shuffled(num_frames)
        return [*found, *making.tidied()]

    outputs = (*outputs, egs / e.names.archive(1), egs / "info" / "num_archives")
    absent = (f"{egs}/{e.names.files}_orig.*.ark",)
    return Stage(number, "examples", (Later(steps),), outputs, absent=absent)


def _combination_check(e: Experiment) -> Jobs:
    """The step that merges the examples for combination, which would else fail after training."""
    egs, program = e.egs_path, e.names.program("merge-egs")
    source = f"ark:{egs / e.names.subset('combine')}"
    words = (program, f"--minibatch-size={e.combination_sizes}", source, "ark:/dev/null")
    return Jobs((Job(f"{egs}/log/check_combine.log", ((words,),), "egs.1"),))


def egs_properties(e: Experiment) -> list[Step]:
    """Steps that copy the example properties that decoding needs to the experiment's directory."""
    names = (
        "cmvn_opts",
        "splice_opts",
        "info/final.ie.id",
        "final.mat",
        "global_cmvn.stats",
        "online_cmvn",
    )
    found = [e.egs_path / name for name in names]
    return [CopyFile(path, e.dir / path.name) for path in found if path.is_file()]


def lda_stage(e: Experiment, egs: EgsDir, number: int) -> Stage:
    """The stage that accumulates LDA statistics and estimates the LDA-like transform."""
    options = e.options.trainer.lda
    count = min(egs.num_archives, options.max_lda_jobs)
    stats = [e.dir / f"{n}.lda_stats" for n in range(1, count + 1)]
    jobs = []
    for n in range(1, count + 1):
        kind = "scp" if egs.is_multitask else "ark"
        source = f"{kind}:{egs.path}/{e.names.archive(n, kind)}"
        examples = "ark:" + pipe_text(f"{e.names.program('copy-egs')} {source} ark:-")
        words = (
            e.names.program("acc-lda-stats"),
            f"--rand-prune={options.rand_prune}",
            f"{e.dir}/init.raw",
            examples,
            f"{e.dir}/{n}.lda_stats",
        )
        jobs.append(Job(e.log(f"get_lda_stats.{n}"), ((words,),), f"train.{n}"))
    sums = ("sum-lda-accs", f"{e.dir}/lda_stats", *map(str, stats))
    transform = ("nnet-get-feature-transform", f"{e.dir}/lda.mat", f"{e.dir}/lda_stats")
    steps: tuple[Step, ...] = (
        Jobs(tuple(jobs), tuple(stats)),
        e.step("sum_transform_stats", sums, out=e.dir / "lda_stats"),
        e.step("get_transform", transform, out=e.dir / "lda.mat"),
        Link(e.dir / "configs" / "lda.mat", "../lda.mat"),
        Remove((f"{e.dir}/*.lda_stats",)),
    )
    return Stage(number, "the LDA-like transform", steps, (e.dir / "lda.mat",))


def _prior_stage(e: Experiment) -> Stage:
    """The stage that writes scales for the softmax input, from the alignments' counts of pdfs."""
    assert e.am is not None
    ali, num_jobs = e.am.ali_dir, e.num_ali_jobs()
    counts = [e.dir / f"pdf_counts.{n}" for n in range(1, num_jobs + 1)]
    jobs = []
    for n in range(1, num_jobs + 1):
        to_post = ("ali-to-post", f"ark:gunzip -c {ali}/ali.{n}.gz |", "ark:-")
        to_counts = (
            "post-to-tacc",
            "--per-pdf=true",
            f"{ali}/final.mdl",
            "ark:-",
            f"{e.dir}/pdf_counts.{n}",
        )
        jobs.append(Job(e.log(f"acc_pdf.{n}"), ((to_post, to_counts),), f"train.{n}"))
    sums = ("vector-sum", "--binary=false", *map(str, counts), f"{e.dir}/pdf_counts")
    steps: tuple[Step, ...] = (
        Jobs(tuple(jobs), tuple(counts)),
        e.step("sum_pdf_counts", sums, out=e.dir / "pdf_counts"),
        Later(lambda: _scales(e)),
        Remove((f"{e.dir}/pdf_counts.*",)),
    )
    out = e.dir / "presoftmax_prior_scale.vec"
    return Stage(-2, "scales before the softmax", steps, (out,))


def _scales(e: Experiment) -> list[Step]:
    """Steps that write the vector of scales, smoothed and printed as Kaldi's script does."""
    path = e.dir / "pdf_counts"
    words = " ".join(read_lines(path)).split()
    if len(words) < 3 or (words[0], words[-1]) != ("[", "]"):
        raise DataError(f"{path}: expected counts of pdfs between brackets")
    counts = [int(float(word)) for word in words[1:-1]]
    power, floor = e.options.trainer.presoftmax_prior_scale_power, 0.01 * sum(counts) / len(counts)
    if floor <= 0.0:
        raise DataError(f"{path}: the alignments have no frames")
    scales = [math.pow(count + floor, power) for count in counts]
    total = sum(scales)
    shown = " ".join(str(scale * float(len(counts)) / total) for scale in scales)
    out = e.dir / "presoftmax_prior_scale.vec"
    link = e.dir / "configs" / out.name
    return [WriteText(out, f"[ {shown} ]"), Link(link, f"../{out.name}")]


def first_network(e: Experiment, raw: Path, srand: int) -> Jobs:
    """The step that adds final.config to init.raw, if that exists, and writes `raw`."""
    first = [f"{e.dir}/init.raw"] if e.has_init_config else []
    words = ("nnet3-init", f"--srand={srand}", *first, f"{e.dir}/configs/final.config", str(raw))
    return e.step("add_first_layer" if first else "init_model", words, out=raw)


def _first_model_stage(e: Experiment) -> Stage:
    given, raw = e.options.trainer.input_model, e.dir / "0.raw"
    steps: list[Step]
    if given:
        steps = [] if e.am is not None else [CopyFile(Path(given), raw)]
    else:
        steps = [first_network(e, raw, e.options.trainer.srand if e.am is None else -3)]
    if e.am is not None:
        steps.append(_acoustic_model(e, given or str(raw)))
    return Stage(-1, "the initial model", tuple(steps), (e.model(0),))


def _acoustic_model(e: Experiment, raw: str) -> Jobs:
    """The job that makes model 0 from the network `raw`, transitions and priors."""
    assert e.am is not None
    ali = e.am.ali_dir
    files = " ".join(f"{ali}/ali.{n + 1}.gz" for n in range(e.num_ali_jobs()))
    init = ("nnet3-am-init", f"{ali}/final.mdl", raw, "-")
    train = ("nnet3-am-train-transitions", "-", f"ark:gunzip -c {files} |", f"{e.dir}/0.mdl")
    return e.step("init_mdl", init, train, out=e.model(0))
