"""The stages of the first model: lang folder, language model, end-to-end LF-MMI training."""

from __future__ import annotations

from pathlib import Path

from nnet3tools.recipe.plan import CopyFile, Jobs, Step, WriteText
from nnet3tools.recipe.speech.setup import (
    COPIES,
    DICT,
    FLAT,
    FLAT_TREE,
    HELD_OUT,
    LANG,
    LM,
    TRAIN,
    Setup,
    job,
    part_file,
    step,
)
from nnet3tools.recipe.speech.training import training


def lang_steps(setup: Setup) -> list[Step]:
    """Steps that make the lang folder and the language model."""
    table = f"--read-symbol-table={LANG}/words.txt"
    grammar = ("arpa2fst", "--disambig-symbol=#0", table, f"{LM}/lm.arpa", f"{LANG}/G.fst")
    return [
        *prepare_lang(setup, DICT, LANG),
        *_language_model(setup),
        step("grammar", grammar, out=LANG / "G.fst"),
    ]


def prepare_lang(setup: Setup, dictionary: Path, lang: Path) -> list[Step]:
    """The step that makes a lang folder of a dictionary folder."""
    options = ("--position-dependent-phones=false", "--chain-topology=true")
    words = ("nnet3-prepare-lang", *options, str(dictionary), setup.facts.unknown_word, str(lang))
    return [step(f"prepare_{lang.name}", words, out=lang / "L_disambig.fst")]


def _language_model(setup: Setup) -> list[Step]:
    """The step that estimates a language model of transcripts and --extra-text.

    With --arpa, the first stage has written the model.
    """
    if setup.options.arpa:
        return []
    words = (
        "nnet3-make-lm",
        f"--order={setup.options.lm_order}",
        f"--vocab={LANG}/words.txt",
        f"--unk={setup.facts.unknown_word}",
        f"--transcripts={TRAIN}/text",
        f"--heldout-transcripts={HELD_OUT}/text",
        *([f"{LM}/extra.txt"] if setup.options.extra_text else []),
        f"{LM}/lm.arpa",
    )
    return [step("make_lm", words, out=LM / "lm.arpa")]


def preparation_steps(setup: Setup) -> list[Step]:
    """Steps that make the flat start's phone language model, tree, and graphs of transcripts."""
    text, tree = COPIES / "text", FLAT_TREE
    phones = ("nnet3-text-to-phones", "--between-silprob=0.1", str(LANG), str(text), "-")
    estimate = ("chain-est-phone-lm", "--num-extra-lm-states=500", "ark:-", f"{tree}/phone_lm.fst")
    shared = f"--shared-phones={LANG}/phones/sets.int"
    mono = ("gmm-init-mono", shared, f"{LANG}/topo", "10", f"{tree}/final.mdl", f"{tree}/tree")
    transitions = ("copy-transition-model", f"{tree}/final.mdl", f"{tree}/0.trans_mdl")
    return [
        step("phone_lm", phones, estimate, out=tree / "phone_lm.fst"),
        step("flat_tree", mono, out=tree / "tree"),
        step("flat_transitions", transitions, out=tree / "0.trans_mdl"),
        *tree_files(setup, tree),
        training_graphs(setup, COPIES, tree),
    ]


def tree_files(setup: Setup, tree: Path) -> list[Step]:
    """Steps that write phones.txt and num_jobs, which training looks for beside a tree."""
    num_jobs = WriteText(tree / "num_jobs", f"{setup.num_parts}\n")
    return [CopyFile(LANG / "phones.txt", tree / "phones.txt"), num_jobs]


def training_graphs(setup: Setup, data: Path, out: Path) -> Jobs:
    """The step that compiles the graphs of a data directory's transcripts, in parts."""
    jobs = []
    for part in setup.parts:
        words = (
            "compile-train-graphs",
            f"--read-disambig-syms={LANG}/phones/disambig.int",
            f"--word-symbol-table={LANG}/words.txt",
            f"--oov-word={setup.facts.unknown_word}",
            f"{FLAT_TREE}/tree",
            f"{FLAT_TREE}/final.mdl",
            f"{LANG}/L.fst",
            f"ark:{part_file(data, 'text', part)}",
            f"ark,scp:{out}/fst.{part}.ark,{out}/fst.{part}.scp",
        )
        jobs.append(job(f"graphs.{data.name}.{part}", words, home=f"egs.{part}"))
    return Jobs(tuple(jobs), tuple(out / f"fst.{part}.scp" for part in setup.parts))


def flat_training(setup: Setup) -> list[Step]:
    """Steps that train the first model with nnet3-train-chain-e2e."""
    return training(setup, FLAT, COPIES, FLAT_TREE)
