"""The stages between the two models: tree of biphones, alignments, how words were said."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from nnet3tools.io import log
from nnet3tools.lang.dictionary import Dictionary
from nnet3tools.lang.symbols import SymbolTable
from nnet3tools.recipe.data_dir import read_lines
from nnet3tools.recipe.jobs import Job
from nnet3tools.recipe.own_data.pronunciations import write_dictionary
from nnet3tools.recipe.plan import CopyFile, Jobs, Step
from nnet3tools.recipe.speech.copies import copies_at_speeds
from nnet3tools.recipe.speech.flat_start import prepare_lang, training_graphs, tree_files
from nnet3tools.recipe.speech.pronunciations import Phones, pronunciations_said, weighted
from nnet3tools.recipe.speech.setup import (
    CHAIN,
    DICT,
    FINAL_LANG,
    FLAT,
    FLAT_TREE,
    LANG,
    SAID,
    SPEEDS,
    SUBSAMPLING,
    TREE,
    Setup,
    action,
    features,
    job,
    part_file,
    read_table,
    step,
)
from nnet3tools.recipe.speech.training import training

_PHONES_SAID = TREE / "phones_said.txt"


def alignment_steps(setup: Setup) -> list[Step]:
    """Steps that align the second model's data with the first model, by the second's tree."""
    before: list[Step] = []
    if setup.second_data == SPEEDS:
        before = [*copies_at_speeds(setup), training_graphs(setup, SPEEDS, SPEEDS)]
    jobs = tuple(_alignment(setup, part) for part in setup.parts)
    files = tuple(TREE / f"ali.{part}.gz" for part in setup.parts)
    return [*before, *_tree_steps(setup), Jobs(jobs, files)]


def _tree_steps(setup: Setup) -> list[Step]:
    """Steps that make the tree of left biphones from counts of them in the transcripts."""
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
        *tree_files(setup, TREE),
    ]


def _alignment(setup: Setup, part: int) -> Job:
    data = setup.second_data
    graphs = SPEEDS if data == SPEEDS else FLAT_TREE
    align = (
        "nnet3-align-compiled",
        f"--use-gpu={'yes' if setup.wants_gpu else 'no'}",
        f"--frame-subsampling-factor={SUBSAMPLING}",
        "--frames-per-chunk=150",
        *("--beam=40", "--retry-beam=160", "--acoustic-scale=1.0"),
        *("--transition-scale=1.0", "--self-loop-scale=1.0"),
        f"{FLAT}/averaged.mdl",
        f"ark:{graphs}/fst.{part}.ark",
        features(part_file(data, "sorted.scp", part), FLAT),
        "ark:-",
    )
    models = (f"{FLAT}/averaged.mdl", f"{TREE}/final.mdl", f"{TREE}/tree")
    convert = ("convert-ali", *models, "ark:-", f"ark:| gzip -c > {TREE}/ali.{part}.gz")
    return job(f"align.{part}", align, convert, home=f"train.{part}", wants_gpu=setup.wants_gpu)


def pronunciation_steps(setup: Setup) -> list[Step]:
    """Steps that make the final lang folder, with probabilities of pronunciations."""
    files = " ".join(f"{TREE}/ali.{part}.gz" for part in setup.parts)
    source = f"ark:gunzip -c {files} |"
    to_phones = ("ali-to-phones", f"{TREE}/final.mdl", source, f"ark,t:{_PHONES_SAID}")
    return [
        step("phones_said", to_phones, out=_PHONES_SAID),
        action(lambda: _write_dictionary(setup)),
        *prepare_lang(setup, SAID, FINAL_LANG),
        CopyFile(LANG / "G.fst", FINAL_LANG / "G.fst"),
    ]


def _write_dictionary(setup: Setup) -> None:
    """Write the dictionary folder with the counted probabilities, and log what was counted."""
    dictionary = Dictionary.load(str(DICT))
    pronunciations: dict[str, list[Phones]] = {}
    for entry in dictionary.lexicon:
        pronunciations.setdefault(entry.word, []).append(entry.phones)
    numbers = SymbolTable.load(str(LANG / "phones.txt")).numbers
    names = {str(number): name for name, number in numbers.items()}
    words_of = read_table(setup.second_data / "text")
    counts: Counter[tuple[str, Phones]] = Counter()
    num_pauses = num_boundaries = num_unclear = 0
    for line in read_lines(_PHONES_SAID):
        key, *phones = line.split()
        unknown = setup.facts.unknown_word
        words = [word if word in pronunciations else unknown for word in words_of[key]]
        said = [names[phone] for phone in phones]
        rows = pronunciations_said(words, said, pronunciations, dictionary.optional_silence)
        if rows is None:
            num_unclear += 1
            continue
        counts.update((word, found) for word, found, _ in rows)
        num_pauses += sum(pause for _, _, pause in rows[:-1])
        num_boundaries += max(len(rows) - 1, 0)
    write_dictionary(SAID, replace(dictionary, lexicon=(*weighted(dictionary.lexicon, counts),)))
    share = num_pauses / max(num_boundaries, 1)
    log.log(f"Silence at {share:.3f} of {num_boundaries} places between words; the "
            f"pronunciations of {num_unclear} utterances are unclear")  # fmt: skip


def second_training(setup: Setup) -> list[Step]:
    """Steps that train the second model with nnet3-train-chain."""
    return training(setup, CHAIN, setup.second_data, TREE)
