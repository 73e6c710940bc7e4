"""The steps of each stage of a recognizer's training."""

from __future__ import annotations

from pathlib import Path

from nnet3tools.recipe.jobs import Job, unzipped
from nnet3tools.recipe.plan import Jobs, Remove, Step, WriteText, copy_file
from nnet3tools.recipe.speech.copies import copies_at_speeds
from nnet3tools.recipe.speech.page import write_page
from nnet3tools.recipe.speech.pronunciations import write_dictionary_as_said
from nnet3tools.recipe.speech.scoring import LM_SCALES, write_model_directory
from nnet3tools.recipe.speech.setup import (
    CHAIN,
    COPIES,
    DECODE,
    DICT,
    FINAL_LANG,
    FLAT,
    FLAT_TREE,
    GRAPH,
    HELD_OUT,
    LANG,
    LM,
    PHONES_SAID,
    SAID,
    SPEEDS,
    SUBSAMPLING,
    TEST,
    TRAIN,
    TREE,
    Setup,
    action,
    features,
    job,
    part_file,
    step,
)
from nnet3tools.recipe.speech.training import training

# -- language


def lang_steps(setup: Setup) -> list[Step]:
    """Steps that make the lang folder and the language model."""
    table = f"--read-symbol-table={LANG}/words.txt"
    grammar = ("arpa2fst", "--disambig-symbol=#0", table, f"{LM}/lm.arpa", f"{LANG}/G.fst")
    return [
        _prepare_lang(setup, DICT, LANG),
        *([] if setup.options.arpa else [_language_model(setup)]),
        step("grammar", grammar, out=LANG / "G.fst"),
    ]


def _prepare_lang(setup: Setup, dictionary: Path, lang: Path) -> Step:
    """The step that makes a lang folder from a dictionary folder."""
    options = ("--position-dependent-phones=false", "--chain-topology=true")
    words = ("nnet3-prepare-lang", *options, str(dictionary), setup.facts.unknown_word, str(lang))
    return step(f"prepare_{lang.name}", words, out=lang / "L_disambig.fst")


def _language_model(setup: Setup) -> Step:
    """The step that estimates a language model from transcripts and --extra-text."""
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
    return step("make_lm", words, out=LM / "lm.arpa")


# -- the first model


def flat_start_steps(setup: Setup) -> list[Step]:
    """Steps that make the first model's phone language model, tree, and transcript graphs."""
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
        *_tree_files(setup, tree),
        _training_graphs(setup, COPIES, tree),
    ]


def _tree_files(setup: Setup, tree: Path) -> list[Step]:
    """Steps that write phones.txt and num_jobs, which training expects beside the tree."""
    num_jobs = WriteText(tree / "num_jobs", f"{setup.num_parts}\n")
    return [copy_file(LANG / "phones.txt", tree / "phones.txt"), num_jobs]


def _training_graphs(setup: Setup, data: Path, out: Path) -> Jobs:
    """The step that compiles training graphs of a data directory's transcripts, in parts."""
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


def first_training(setup: Setup) -> list[Step]:
    """Steps that train the first model with nnet3-train-chain-e2e."""
    return training(setup, FLAT, COPIES, FLAT_TREE)


# -- alignments and the second model


def alignment_steps(setup: Setup) -> list[Step]:
    """Steps that align the second model's data by the first model; the second's tree needs them."""
    before: list[Step] = []
    if setup.second_data == SPEEDS:
        before = [*copies_at_speeds(setup), _training_graphs(setup, SPEEDS, SPEEDS)]
    jobs = tuple(_alignment(setup, part) for part in setup.parts)
    files = tuple(TREE / f"ali.{part}.gz" for part in setup.parts)
    return [*before, *_biphone_tree(setup), Jobs(jobs, files)]


def _biphone_tree(setup: Setup) -> list[Step]:
    """Steps that make the tree of left biphones, from counts of biphones in the transcripts."""
    text, counts = setup.second_data / "text", TREE / "phone_counts.txt"
    no_silence = ("--edge-silprob=0", "--between-silprob=0", f"--phone-counts={counts}")
    count = ("nnet3-text-to-phones", *no_silence, str(LANG), str(text), "/dev/null")
    biphones = (
        "gmm-init-biphone",
        f"--min-biphone-count={setup.size.min_biphone_count}",
        "--min-monophone-count=20",
        f"--phone-counts={counts}",
        f"--shared-phones={LANG}/phones/sets.int",
        *(f"{LANG}/topo", "10", f"{TREE}/final.mdl", f"{TREE}/tree"),
    )
    return [
        step("phone_counts", count, out=counts),
        step("tree", biphones, out=TREE / "tree"),
        *_tree_files(setup, TREE),
    ]


def _alignment(setup: Setup, part: int) -> Job:
    data, model = setup.second_data, f"{FLAT}/averaged.mdl"
    graphs = SPEEDS if data == SPEEDS else FLAT_TREE
    align = (
        "nnet3-align-compiled",
        f"--use-gpu={'yes' if setup.wants_gpu else 'no'}",
        f"--frame-subsampling-factor={SUBSAMPLING}",
        "--frames-per-chunk=150",
        *("--beam=40", "--retry-beam=160", "--acoustic-scale=1.0"),
        *("--transition-scale=1.0", "--self-loop-scale=1.0"),
        model,
        f"ark:{graphs}/fst.{part}.ark",
        features(part_file(data, "sorted.scp", part), FLAT),
        "ark:-",
    )
    models = (model, f"{TREE}/final.mdl", f"{TREE}/tree")
    convert = ("convert-ali", *models, "ark:-", f"ark:| gzip -c > {TREE}/ali.{part}.gz")
    return job(f"align.{part}", align, convert, home=f"train.{part}", wants_gpu=setup.wants_gpu)


def pronunciation_steps(setup: Setup) -> list[Step]:
    """Steps that make the final lang folder, with probabilities of pronunciations."""
    alignments = unzipped(TREE, "ali", setup.num_parts)
    to_phones = ("ali-to-phones", f"{TREE}/final.mdl", alignments, f"ark,t:{PHONES_SAID}")
    return [
        step("phones_said", to_phones, out=PHONES_SAID),
        action(lambda: write_dictionary_as_said(setup)),
        _prepare_lang(setup, SAID, FINAL_LANG),
        copy_file(LANG / "G.fst", FINAL_LANG / "G.fst"),
    ]


def second_training(setup: Setup) -> list[Step]:
    """Steps that train the second model with nnet3-train-chain."""
    return training(setup, CHAIN, setup.second_data, TREE)


# -- the recognizer


def graph_steps(setup: Setup) -> list[Step]:
    """Steps that copy the model and make the decoding graph."""
    names = (str(FINAL_LANG), "tree", "final.mdl", str(GRAPH))
    words = ("nnet3-make-graph", "--self-loop-scale=1.0", *names)
    return [
        copy_file(CHAIN / "averaged.mdl", Path("final.mdl")),
        copy_file(CHAIN / "tree", Path("tree")),
        step("graph", words, out=GRAPH / "HCLG.fst"),
    ]


def scale_steps(setup: Setup) -> list[Step]:
    """Steps that decode the held-out part, choose the best scale, and write the model directory."""
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
    return [*steps, action(write_model_directory)]


def scoring_steps(setup: Setup) -> list[Step]:
    """Steps that decode held-out and --test data with nnet3-decode, then write the report.

    The last step removes sound and features of the training data, because they are large.
    """
    steps: list[Step] = []
    for data in (HELD_OUT, TEST):
        if (data / "wav.scp").exists():
            out = DECODE / f"{data.name}.txt"
            words = ("nnet3-decode", f"--output={out}", ".", f"scp:{data}/wav.scp")
            steps.append(step(f"recognize.{data.name}", words, out=out))
    large = [f"{data}/{name}" for data in (TRAIN, COPIES, SPEEDS) for name in ("*.ark", "parts/*")]
    return [*steps, action(lambda: write_page(setup)), Remove(tuple(large))]
