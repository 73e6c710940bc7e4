"""The stages of the first model: lang folder, language model, end-to-end LF-MMI training."""

from __future__ import annotations

from pathlib import Path

from nnet3tools.recipe.data_dir import filter_lines, read_lines
from nnet3tools.recipe.plan import CopyFile, Jobs, Step, WriteText
from nnet3tools.recipe.speech.copies import part_file, part_numbers
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
    action,
    job,
    make_folder,
    step,
    write_lines,
)
from nnet3tools.recipe.speech.training import training


def lang_steps(setup: Setup) -> list[Step]:
    """Steps that make the lang folder and the language model as an FST."""
    return [prepare_lang(setup, DICT, LANG), *_language_model(setup), grammar(LANG)]


def prepare_lang(setup: Setup, dictionary: Path, lang: Path) -> Jobs:
    """The step that makes a lang folder of a dictionary folder."""
    options = ("--position-dependent-phones=false", "--chain-topology=true")
    words = ("nnet3-prepare-lang", *options, str(dictionary), setup.facts.unknown_word, str(lang))
    return step(f"prepare_{lang.name}", words, out=lang / "L_disambig.fst")


def grammar(lang: Path) -> Jobs:
    """The step that makes G.fst of a lang folder and the language model."""
    table = f"--read-symbol-table={lang}/words.txt"
    words = ("arpa2fst", "--disambig-symbol=#0", table, f"{LM}/lm.arpa", f"{lang}/G.fst")
    return step(f"grammar_{lang.name}", words, out=lang / "G.fst")


def _language_model(setup: Setup) -> list[Step]:
    """Steps that copy --arpa, or estimate a language model of transcripts and --extra-text."""
    options = setup.options
    if options.arpa:
        return [make_folder(LM), CopyFile(Path(options.arpa), LM / "lm.arpa")]

    words = (
        "nnet3-make-lm",
        f"--order={options.lm_order}",
        f"--vocab={LANG}/words.txt",
        f"--unk={setup.facts.unknown_word}",
        f"--transcripts={TRAIN}/text",
        f"--heldout-transcripts={HELD_OUT}/text",
        *([options.extra_text] if options.extra_text else []),
        f"{LM}/lm.arpa",
    )
    return [make_folder(LM), step("make_lm", words, out=LM / "lm.arpa")]


def preparation_steps(setup: Setup) -> list[Step]:
    """Steps that make the flat start's phone language model, tree, and graphs of transcripts."""
    text, tree = COPIES / "text", FLAT_TREE
    phones = ("nnet3-text-to-phones", "--between-silprob=0.1", str(LANG), str(text), "-")
    estimate = ("chain-est-phone-lm", "--num-extra-lm-states=500", "ark:-", f"{tree}/phone_lm.fst")
    shared = f"--shared-phones={LANG}/phones/sets.int"
    mono = ("gmm-init-mono", shared, f"{LANG}/topo", "10", f"{tree}/final.mdl", f"{tree}/tree")
    transitions = ("copy-transition-model", f"{tree}/final.mdl", f"{tree}/0.trans_mdl")
    return [
        make_folder(tree),
        step("phone_lm", phones, estimate, out=tree / "phone_lm.fst"),
        step("flat_tree", mono, out=tree / "tree"),
        step("flat_transitions", transitions, out=tree / "0.trans_mdl"),
        CopyFile(LANG / "phones.txt", tree / "phones.txt"),
        WriteText(tree / "num_jobs", f"{setup.num_parts}\n"),
        *training_graphs(setup, COPIES),
    ]


def training_graphs(setup: Setup, data: Path) -> list[Step]:
    """Steps that compile the graphs of a data directory's transcripts, in parts.

    Graphs of the flat start's copies are written where its training program looks for them.
    """
    folder = FLAT_TREE if data == COPIES else data
    jobs = []
    for part in part_numbers(setup):
        words = (
            "compile-train-graphs",
            f"--read-disambig-syms={LANG}/phones/disambig.int",
            f"--word-symbol-table={LANG}/words.txt",
            f"--oov-word={setup.facts.unknown_word}",
            f"{FLAT_TREE}/tree",
            f"{FLAT_TREE}/final.mdl",
            f"{LANG}/L.fst",
            f"ark:{part_file(data, 'text', part)}",
            f"ark,scp:{folder}/fst.{part}.ark,{folder}/fst.{part}.scp",
        )
        jobs.append(job(f"graphs.{data.name}.{part}", words, home=f"egs.{part}"))
    scripts = tuple(folder / f"fst.{part}.scp" for part in part_numbers(setup))
    return [action(lambda: _split_text(setup, data)), Jobs(tuple(jobs), scripts)]


def _split_text(setup: Setup, data: Path) -> None:
    """Write the transcripts and feature scripts of a data directory's parts, sorted by key."""
    text, scripts = read_lines(data / "text"), read_lines(data / "feats.scp")
    for part in part_numbers(setup):
        first, last = (len(text) * n // setup.num_parts for n in (part - 1, part))
        keys = [line.split(None, 1)[0] for line in text[first:last]]
        write_lines(part_file(data, "text", part), text[first:last])
        write_lines(part_file(data, "sorted.scp", part), filter_lines(scripts, keys))


def flat_training(setup: Setup) -> list[Step]:
    """Steps that train the first model with nnet3-train-chain-e2e."""
    return training(setup, FLAT, COPIES, FLAT_TREE)
