"""The stages before chain training: phone language model, denominator graph, examples, model 0."""

from __future__ import annotations

import shlex

from nnet3tools.recipe.chain_experiment import ChainExperiment
from nnet3tools.recipe.egs_dir import EgsDir
from nnet3tools.recipe.jobs import Job
from nnet3tools.recipe.plan import CopyFile, Jobs, Stage, Step, WriteText
from nnet3tools.recipe.preparation import (
    Preparation,
    egs_stage,
    first_network,
    init_stage,
    lda_stage,
)
from nnet3tools.recipe.schedules import Iterations


class ChainPreparation(Preparation):
    """Plans the stages before chain training, as Kaldi's train.py and train_e2e.py do."""

    def __init__(self, experiment: ChainExperiment) -> None:
        self._e: ChainExperiment = experiment

    def early_copies(self) -> list[CopyFile | WriteText]:
        """Steps that copy the tree's files which decoding (end to end, making graphs) needs."""
        e = self._e
        names = ["phones.txt", "tree"]
        if e.is_e2e:
            names += ["phone_lm.fst", "0.trans_mdl"]
        return [
            *(CopyFile(e.tree_dir / n, e.dir / n) for n in names if (e.tree_dir / n).is_file()),
            WriteText(e.dir / "num_jobs", str(e.num_ali_jobs())),
        ]

    def schedule_files(self, schedule: Iterations) -> list[WriteText]:
        """A step that writes the file num_iters, which only chain/train.py does."""
        e = self._e
        return [] if e.is_e2e else [WriteText(e.dir / "num_iters", f"{schedule.count}\n")]

    def before_egs(self) -> list[Stage]:
        """The stages up to the making of examples, which is the last of them."""
        e = self._e
        stages = [] if e.is_e2e else [_phone_lm_stage(e)]
        stages.append(_den_fst_stage(e))
        if e.has_init_config:
            stages.append(init_stage(e, -4))
        if not e.options.egs.dir:
            stages.append(egs_stage(e, -3))
        return stages

    def with_egs(self, egs: EgsDir) -> list[Stage]:
        """The stages between the making of examples and model 0."""
        e = self._e
        stages = [lda_stage(e, egs, -2)] if e.has_init_config else []
        return [*stages, _first_model_stage(e)]


def _phone_lm_stage(e: ChainExperiment) -> Stage:
    """The stage that estimates the phone language model of the tree's alignments."""
    count = e.num_ali_jobs()
    files = " ".join(str(e.tree_dir / f"ali.{n + 1}.gz") for n in range(count))
    out = e.dir / "phone_lm.fst"
    phones = ("ali-to-phones", f"{e.tree_dir}/final.mdl", f"ark:gunzip -c {files} |", "ark:-")
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


def _first_model_stage(e: ChainExperiment) -> Stage:
    given, raw = e.options.trainer.input_model, e.dir / "0.raw"
    steps: list[Step] = []
    if not given:
        steps.append(first_network(e, raw, -1))
    words = ("nnet3-am-init", f"{e.dir}/0.trans_mdl", given or str(raw), str(e.model(0)))
    steps.append(e.step("init_mdl", words, out=e.model(0)))
    return Stage(-1, "the initial model", tuple(steps), (e.model(0),))
