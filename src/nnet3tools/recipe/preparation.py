"""The stages before training: phone language model, first network, examples, LDA, model 0."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

from nnet3tools.errors import DataError
from nnet3tools.io.checked import is_file
from nnet3tools.recipe.chain_egs import egs_making
from nnet3tools.recipe.chain_experiment import ChainExperiment
from nnet3tools.recipe.data_dir import amount_or_none, read_lines
from nnet3tools.recipe.egs_dir import EgsDir
from nnet3tools.recipe.experiment import Experiment
from nnet3tools.recipe.jobs import Job, pipe_text, unzipped
from nnet3tools.recipe.plan import Jobs, Later, Link, Remove, Stage, Step, WriteText, copy_file


def early_copies(e: Experiment) -> list[Step]:
    """Steps that copy tree, phones.txt (if e2e: phone_lm.fst, 0.trans_mdl), and write num_jobs."""
    if (tree_dir := e.tree_dir) is None:
        return []
    names = ["phones.txt", "tree"]
    if isinstance(e, ChainExperiment) and e.is_e2e:
        names += ["phone_lm.fst", "0.trans_mdl"]
    return [
        *(copy_file(tree_dir / n, e.dir / n) for n in names if is_file(tree_dir / n)),
        WriteText(e.dir / "num_jobs", str(e.num_ali_jobs())),
    ]


def stages_before_egs(e: Experiment) -> list[Stage]:
    """The stages from the start of training up to the making of examples."""
    stages = []
    if isinstance(e, ChainExperiment):
        stages += [] if e.is_e2e else [_phone_lm_stage(e)]
        stages.append(_den_fst_stage(e))
    if e.has_init_config:  # builds what the LDA-like transform reads
        out = e.dir / "init.raw"
        words = ("nnet3-init", "--srand=-2", f"{e.dir}/configs/init.config", str(out))
        step = e.step("nnet_init", words, out=out)
        stages.append(Stage(_number(e, -4), "the first part of the network", (step,), (out,)))
    if not e.options.egs.dir:
        stages.append(_egs_stage(e))
    return stages


def stages_with_egs(e: Experiment, egs: EgsDir) -> list[Stage]:
    """The stages after the making of examples, up to and with the one that makes model 0."""
    stages = [_lda_stage(e, egs)] if e.has_init_config else []
    if e.am is not None and not e.options.trainer.input_model:
        stages.append(_prior_stage(e))
    return [*stages, _first_model_stage(e)]


def _number(e: Experiment, number: int) -> int:
    """Kaldi's stage number: `number` for chain and raw models, one less for other models."""
    return number if e.am is None else number - 1


def _phone_lm_stage(e: ChainExperiment) -> Stage:
    """The stage that estimates the phone language model of the tree's alignments."""
    out, alignments = e.dir / "phone_lm.fst", unzipped(e.tree_dir, "ali", e.num_ali_jobs())
    phones = ("ali-to-phones", f"{e.tree_dir}/final.mdl", alignments, "ark:-")
    estimate = ("chain-est-phone-lm", *shlex.split(e.options.chain.lm_opts), "ark:-", str(out))
    step = e.step("make_phone_lm", phones, estimate, out=out)
    return Stage(-6, "the phone language model", (step,), (out,))


def _den_fst_stage(e: ChainExperiment) -> Stage:
    model, steps = e.dir / "0.trans_mdl", list[Step]()
    if not e.is_e2e:
        words = ("copy-transition-model", f"{e.tree_dir}/final.mdl", str(model))
        steps.append(e.step("copy_transition_model", words, out=model))
    outputs = (e.dir / "den.fst", e.dir / "normalization.fst")
    made_of = (f"{e.dir}/tree", str(model), f"{e.dir}/phone_lm.fst")
    make = ("chain-make-den-fst", *made_of, *map(str, outputs))
    steps.append(Jobs((Job(e.log("make_den_fst"), ((make,),), "train.1"),), outputs))
    return Stage(-5, "the denominator graph", tuple(steps), (*outputs, model))


def _egs_stage(e: Experiment) -> Stage:
    """The stage that makes examples; its list of steps is made when the stage runs."""
    egs, names = e.egs_path, e.objective
    subsets = ("combine", "valid_diagnostic", "train_diagnostic")
    outputs = [*map(names.subset, subsets), names.archive(1), "info/num_archives"]
    return Stage(
        _number(e, -3),
        "examples",
        (Later(lambda: egs_making(e).steps()),),
        tuple(egs / name for name in outputs),
        absent=(f"{egs}/{names.files}_orig.*.ark",),
    )


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
    return [copy_file(path, e.dir / path.name) for path in found if is_file(path)]


def _lda_stage(e: Experiment, egs: EgsDir) -> Stage:
    """The stage that accumulates LDA statistics and estimates the LDA-like transform."""
    options = e.options.trainer.lda
    count = min(egs.num_archives, options.max_lda_jobs)
    stats = [e.dir / f"{n}.lda_stats" for n in range(1, count + 1)]
    jobs = []
    for n in range(1, count + 1):
        kind = "scp" if egs.is_multitask else "ark"
        source = f"{kind}:{egs.path}/{e.objective.archive(n, kind)}"
        examples = "ark:" + pipe_text((e.objective.program("copy-egs"), source, "ark:-"))
        words = (
            e.objective.program("acc-lda-stats"),
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
    return Stage(_number(e, -2), "the LDA-like transform", steps, (e.dir / "lda.mat",))


def _prior_stage(e: Experiment) -> Stage:
    """The stage that writes scales for the softmax input, from pdf counts of alignments."""
    assert e.am is not None
    ali, num_jobs = e.am.ali_dir, e.num_ali_jobs()
    counts = [e.dir / f"pdf_counts.{n}" for n in range(1, num_jobs + 1)]
    jobs = []
    for n in range(1, num_jobs + 1):
        to_post = ("ali-to-post", unzipped(ali, "ali", n, n), "ark:-")
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
    """Steps that write the scales of the softmax input, computed from pdf counts as Kaldi does."""
    path = e.dir / "pdf_counts"
    words = " ".join(read_lines(path)).split()
    if len(words) < 3 or (words[0], words[-1]) != ("[", "]"):
        raise DataError(f"{path}: expected counts of pdfs between brackets")
    counts = [int(count) for word in words[1:-1] if (count := amount_or_none(word)) is not None]
    if len(counts) < len(words) - 2:
        raise DataError(f"{path}: expected counts of pdfs, 0 or more")
    power, floor = e.options.trainer.presoftmax_prior_scale_power, 0.01 * sum(counts) / len(counts)
    if floor <= 0.0:
        raise DataError(f"{path}: the alignments have no frames")
    scales = [math.pow(count + floor, power) for count in counts]
    total = sum(scales)
    shown = " ".join(str(scale * float(len(counts)) / total) for scale in scales)
    out = e.dir / "presoftmax_prior_scale.vec"
    link = e.dir / "configs" / out.name
    return [WriteText(out, f"[ {shown} ]"), Link(link, f"../{out.name}")]


def _first_network(e: Experiment, raw: Path, srand: int) -> Jobs:
    """The step that makes network `raw`: final.config, on top of init.raw if e.has_init_config."""
    first = [f"{e.dir}/init.raw"] if e.has_init_config else []
    words = ("nnet3-init", f"--srand={srand}", *first, f"{e.dir}/configs/final.config", str(raw))
    return e.step("add_first_layer" if first else "init_model", words, out=raw)


def _first_model_stage(e: Experiment) -> Stage:
    """The stage that makes the network (or takes --trainer.input-model) and model 0."""
    given, raw = e.options.trainer.input_model, e.dir / "0.raw"
    steps: list[Step] = []
    if not given:
        srand = -1 if e.raw is None else e.options.trainer.srand
        steps.append(_first_network(e, raw, srand if e.am is None else -3))
    elif not e.is_acoustic:
        steps.append(copy_file(Path(given), raw))
    if e.is_acoustic:
        steps.append(_acoustic_model(e, given or str(raw)))
    return Stage(-1, "the initial model", tuple(steps), (e.model(0),))


def _acoustic_model(e: Experiment, raw: str) -> Jobs:
    """The step that joins the network `raw` and the transition model to model 0."""
    if e.am is None:
        words = ("nnet3-am-init", f"{e.dir}/0.trans_mdl", raw, str(e.model(0)))
        return e.step("init_mdl", words, out=e.model(0))
    alignments = unzipped(e.am.ali_dir, "ali", e.num_ali_jobs())
    init = ("nnet3-am-init", f"{e.am.ali_dir}/final.mdl", raw, "-")
    train = ("nnet3-am-train-transitions", "-", alignments, f"{e.dir}/0.mdl")
    return e.step("init_mdl", init, train, out=e.model(0))
