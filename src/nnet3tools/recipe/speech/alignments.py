"""The stages between the two models: tree of biphones, alignments, how words were said."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

from nnet3tools.io import log
from nnet3tools.recipe.data_dir import read_lines
from nnet3tools.recipe.jobs import Job
from nnet3tools.recipe.plan import CopyFile, Jobs, Step, WriteText
from nnet3tools.recipe.speech.copies import copies_at_speeds, part_file, part_numbers
from nnet3tools.recipe.speech.flat_start import grammar, prepare_lang, training_graphs
from nnet3tools.recipe.speech.pronunciations import (
    NumberedLexicon,
    pronunciations_said,
    weighted_lexicon,
)
from nnet3tools.recipe.speech.setup import (
    CHAIN,
    DICT,
    FLAT,
    FLAT_TREE,
    LANG,
    SPEEDS,
    SUBSAMPLING,
    TREE,
    WORK,
    Setup,
    action,
    features,
    job,
    make_folder,
    read_table,
    step,
    write_lines,
)
from nnet3tools.recipe.speech.training import training

SAID = WORK / "dict_said"
FINAL_LANG = Path("lang")


def alignment_steps(setup: Setup) -> list[Step]:
    """Steps that align the second model's data with the first model, by the second's tree."""
    before: list[Step] = []
    if setup.second_data == SPEEDS:
        before = [*copies_at_speeds(setup), *training_graphs(setup, SPEEDS)]
    jobs = [_alignment(setup, part) for part in part_numbers(setup)]
    files = tuple(TREE / f"ali.{part}.gz" for part in part_numbers(setup))
    return [*before, *_tree_steps(setup), Jobs(tuple(jobs), files)]


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
        make_folder(TREE),
        step("phone_counts", count, out=counts),
        step("tree", biphones, out=TREE / "tree"),
        CopyFile(LANG / "phones.txt", TREE / "phones.txt"),
        WriteText(TREE / "num_jobs", f"{setup.num_parts}\n"),
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
        features(data, part_file(data, "sorted.scp", part)),
        "ark:-",
    )
    models = (f"{FLAT}/averaged.mdl", f"{TREE}/final.mdl", f"{TREE}/tree")
    convert = ("convert-ali", *models, "ark:-", f"ark:| gzip -c > {TREE}/ali.{part}.gz")
    home = f"train.{part}"
    return job(f"align.{part}", align, convert, home=home, wants_gpu=setup.wants_gpu)


def pronunciation_steps(setup: Setup) -> list[Step]:
    """Steps that make the final lang folder, with probabilities of pronunciations."""
    files = " ".join(f"{TREE}/ali.{part}.gz" for part in part_numbers(setup))
    phones = TREE / "phones_said.txt"
    source = f"ark:gunzip -c {files} |"
    to_phones = ("ali-to-phones", f"{TREE}/final.mdl", source, f"ark,t:{phones}")
    return [
        step("phones_said", to_phones, out=phones),
        action(lambda: _write_dictionary(setup, phones)),
        prepare_lang(setup, SAID, FINAL_LANG),
        grammar(FINAL_LANG),
    ]


def _write_dictionary(setup: Setup, phones: Path) -> None:
    """Write the dictionary folder with the counted probabilities, and log what was counted."""
    (silence,) = (DICT / "optional_silence.txt").read_text().split()
    lexicon = NumberedLexicon.load(DICT / "lexiconp.txt", LANG / "phones.txt", silence)
    words_of = read_table(setup.second_data / "text")
    counts: Counter[tuple[str, tuple[int, ...]]] = Counter()
    num_pauses = num_boundaries = num_unclear = 0
    for line in read_lines(phones):
        key, *numbers = line.split()
        words = [
            word if word in lexicon.pronunciations else setup.facts.unknown_word
            for word in words_of[key]
        ]
        rows = pronunciations_said(words, [int(n) for n in numbers], lexicon)
        if rows is None:
            num_unclear += 1
            continue
        counts.update((word, said) for word, said, _ in rows)
        num_pauses += sum(pause for _, _, pause in rows[:-1])
        num_boundaries += max(len(rows) - 1, 0)
    shutil.copytree(DICT, SAID, dirs_exist_ok=True)
    write_lines(SAID / "lexiconp.txt", weighted_lexicon(lexicon, counts))
    share = num_pauses / max(num_boundaries, 1)
    log.log(f"Silence at {share:.3f} of {num_boundaries} places between words; the "
            f"pronunciations of {num_unclear} utterances are unclear")  # fmt: skip


def second_training(setup: Setup) -> list[Step]:
    """Steps that train the second model with nnet3-train-chain."""
    return training(setup, CHAIN, setup.second_data, TREE)
