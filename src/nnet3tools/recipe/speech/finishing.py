"""The last stages: decoding graph, scale of the language model, model directory, word errors."""

from __future__ import annotations

from pathlib import Path

from nnet3tools.io import log
from nnet3tools.lang.symbols import SymbolTable
from nnet3tools.recipe.plan import CopyFile, Remove, Step
from nnet3tools.recipe.speech.page import write_page
from nnet3tools.recipe.speech.scoring import Scores
from nnet3tools.recipe.speech.setup import (
    CHAIN,
    CMVN_OPTIONS,
    COPIES,
    DECODE,
    FINAL_LANG,
    GRAPH,
    HELD_OUT,
    SPEEDS,
    SUBSAMPLING,
    TEST,
    TRAIN,
    Setup,
    action,
    features,
    read_table,
    step,
)
from nnet3tools.recognizer.directory import ModelFacts, write_directory

LM_SCALES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0)


def graph_steps(setup: Setup) -> list[Step]:
    """Steps that copy the model and make the decoding graph."""
    names = (str(FINAL_LANG), "tree", "final.mdl", str(GRAPH))
    words = ("nnet3-make-graph", "--self-loop-scale=1.0", *names)
    return [
        CopyFile(CHAIN / "averaged.mdl", Path("final.mdl")),
        CopyFile(CHAIN / "tree", Path("tree")),
        step("graph", words, out=GRAPH / "HCLG.fst"),
    ]


def scale_steps(setup: Setup) -> list[Step]:
    """Steps that decode the held-out part and write the model directory with the best scale."""
    mfcc = ("compute-mfcc-feats", "--config=mfcc.conf", f"scp:{HELD_OUT}/wav.scp", "ark:-")
    script = HELD_OUT / "feats.scp"
    copy = ("copy-feats", "--compress=true", "ark:-", f"ark,scp:{HELD_OUT}/feats.ark,{script}")
    latgen = (
        "nnet3-latgen-faster",
        f"--frame-subsampling-factor={SUBSAMPLING}",
        "--frames-per-chunk=150",
        *("--acoustic-scale=1.0", "--beam=15.0", "--max-active=7000", "--lattice-beam=8.0"),
        "final.mdl",
        f"{GRAPH}/HCLG.fst",
        features(script, CHAIN),
        f"ark:{DECODE}/lat.ark",
    )
    steps: list[Step] = [
        step("mfcc.held_out", mfcc, copy, out=script),
        step("decode.held_out", latgen, out=DECODE / "lat.ark"),
    ]
    for scale in LM_SCALES:
        out = DECODE / f"words.{scale:g}"
        options = (f"--lm-scale={scale:g}", f"ark:{DECODE}/lat.ark", f"ark,t:{out}")
        steps.append(step(f"best.{scale:g}", ("lattice-best-path", *options), out=out))
    return [*steps, action(_write_directory)]


def best_scale(errors: dict[float, int]) -> float:
    """The middle one of the scales with the fewest errors."""
    fewest = min(errors.values())
    best = [scale for scale, count in errors.items() if count == fewest]
    return best[len(best) // 2]


def _write_directory() -> None:
    """Choose the language model's scale, and write the files that decoding needs."""
    numbers = SymbolTable.load(str(GRAPH / "words.txt")).numbers
    names = {str(number): name for name, number in numbers.items()}
    said = read_table(HELD_OUT / "text")
    errors = {}
    for scale in LM_SCALES:
        found = read_table(DECODE / f"words.{scale:g}")
        text = {key: [names[number] for number in row] for key, row in found.items()}
        errors[scale] = Scores.of(said, text).num_errors
    chosen = best_scale(errors)
    shown = ", ".join(f"{scale:g}: {count}" for scale, count in errors.items())
    log.log(
        f"Errors of the held-out part by scale of the language model: {shown}; taken: {chosen:g}"
    )
    decoding = {
        "acoustic-scale": 1.0,
        "lm-scale": chosen,
        "allow-downsample": "true",
        "endpoint.silence-phones": (GRAPH / "phones" / "silence.csl").read_text().strip(),
    }
    facts = ModelFacts(
        SUBSAMPLING,
        features=Path("mfcc.conf"),
        cmvn_opts=CMVN_OPTIONS,
        global_cmvn_stats=CHAIN / "global_cmvn.stats",
        decoding=decoding,
    )
    write_directory(".", facts)


def scoring_steps(setup: Setup) -> list[Step]:
    """Steps that decode the held-out part and --test as a user would, and write the report.

    The sound and features of the training data, which need most of the disk, are removed.
    """
    steps: list[Step] = []
    for data in (HELD_OUT, TEST):
        if (data / "wav.scp").exists():
            out = DECODE / f"{data.name}.txt"
            words = ("nnet3-decode", f"--output={out}", ".", f"scp:{data}/wav.scp")
            steps.append(step(f"recognize.{data.name}", words, out=out))
    archives = (f"{folder}/{name}" for folder in (TRAIN, COPIES, SPEEDS) for name in _LARGE)
    return [*steps, action(lambda: write_page(setup)), Remove(tuple(archives))]


_LARGE = ("*.ark", "parts/*")
