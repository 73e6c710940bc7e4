"""Dictionaries of users: their formats, letters as phones, and what prepare-lang makes of them."""

from pathlib import Path

import pytest

from nnet3tools.errors import DataError
from nnet3tools.lang.dictionary import Dictionary
from nnet3tools.recipe.own_data.faults import Fault, FaultList
from nnet3tools.recipe.own_data.pronunciations import (
    WordList,
    letters,
    read_word_list,
    write_dictionary,
)
from support.programs import run

CMU = """;;; # CMUdict
hello  HH AH0 L OW1
hello(2)  HH EH0 L OW1 # variant
world  W ER1 L D

<noise> NSN
"""


def word_list(path: Path, contents: str | bytes) -> tuple[WordList, FaultList]:
    path.write_bytes(contents.encode() if isinstance(contents, str) else contents)
    faults = FaultList()
    return read_word_list(str(path), faults), faults


def written(words: WordList, folder: Path, used: tuple[str, ...] = ()) -> Dictionary:
    write_dictionary(folder, words.dictionary(used))
    assert run("nnet3-prepare-lang", folder, words.unknown_word, f"{folder}-lang") == 0
    return Dictionary.load(str(folder))


def test_cmu_dictionary(tmp_path: Path) -> None:
    words, faults = word_list(tmp_path / "cmudict", CMU)
    assert not faults.findings
    assert [words.num_phones(word) for word in ("hello", "hello(2)", "world", "x")] == [4, 0, 4, 0]
    dictionary = written(words, tmp_path / "dict")
    assert [(e.word, " ".join(e.phones)) for e in dictionary.lexicon] == [
        ("<unk>", "SPN"),
        ("hello", "HH AH0 L OW1"),
        ("hello", "HH EH0 L OW1"),
        ("world", "W ER1 L D"),
        ("<noise>", "NSN"),
    ]
    assert {entry.probability for entry in dictionary.lexicon} == {1.0}
    assert dictionary.silence == (("SIL",), ("SPN",), ("NSN",))
    assert dictionary.extra_questions == (("AH0", "EH0"), ("ER1", "OW1"))


def test_lexicon_with_probabilities_and_its_own_unknown_word(tmp_path: Path) -> None:
    contents = "<UNK> 1.0 GBG\na 0.5 ah1 b\na 1 ah2\nß 1e-3 s\n"
    words, faults = word_list(tmp_path / "lexiconp.txt", contents)
    assert not faults.findings
    dictionary = written(words, tmp_path / "dict")
    assert words.unknown_word == "<UNK>"
    assert [entry.probability for entry in dictionary.lexicon] == [1.0, 0.5, 1.0, 0.001]
    assert dictionary.nonsilence == (("ah1", "ah2"), ("b",), ("s",))
    assert ("GBG",) in dictionary.silence


def test_dictionary_folder(tmp_path: Path) -> None:
    written(word_list(tmp_path / "cmudict", CMU)[0], tmp_path / "dict")
    words = read_word_list(str(tmp_path / "dict"), FaultList())
    assert words.given is not None
    assert written(words, tmp_path / "again") == Dictionary.load(str(tmp_path / "dict"))
    lexicon = tmp_path / "dict" / "lexiconp.txt"
    lexicon.write_text(lexicon.read_text().replace("<unk> 1 SPN\n", ""))
    with pytest.raises(DataError, match="a word for unknown words"):
        read_word_list(str(tmp_path / "dict"), FaultList())


def test_wrong_lines_of_a_lexicon(tmp_path: Path) -> None:
    contents = b"a b\nword\n<s> SIL\nx #1\ncaf\xe9 k\n\xef\xbb\xbfb c\n"
    words, faults = word_list(tmp_path / "lexicon.txt", contents)
    assert [f.where[-1] for f in faults.findings[Fault.MALFORMED]] == ["2", "3", "4"]
    assert [f.where[-1] for f in faults.findings[Fault.NOT_UTF8]] == ["5"]
    assert words.num_phones("a") == 1
    for name, text in (("empty", ""), ("none", None)):
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(DataError, match=name):
            read_word_list(str(tmp_path / name), FaultList())


@pytest.mark.parametrize(
    ("word", "normalized", "phones"),
    [
        ("Hello,", "Hello", "H e l l o"),
        ("“don't”", "don't", "d o n t"),
        ("x-ray.", "x-ray", "x r a y"),
        ("50%", "50%", "5 0 %"),
        ("-", "", ""),
        ("…", "", ""),
        ("u\u0308ber", "\u00fcber", "ü b e r"),
        ("#1", "1", "1"),
        ("[laughter]", "[laughter]", "SPN"),
        ("<unk>", "<unk>", "SPN"),
        ("¿Qué?", "Qué", "Q u é"),
        ("हिन्दी", "हिन्दी", "ह ि न ् द ी"),
        ("日本", "日本", "日 本"),
        ("a\u200bb\u200b", "a\u200bb", "a b"),
    ],
)
def test_letters_are_phones(word: str, normalized: str, phones: str) -> None:
    assert WordList().normalized(word) == normalized
    assert " ".join(letters(normalized)) == phones


def test_letters_of_all_scripts_make_a_lang_folder(tmp_path: Path) -> None:
    words = ("Hello", "hello", "50%", "日本", "हिन्दी", "[noise]", "é", "don't")
    dictionary = written(WordList(), tmp_path / "dict", words)
    assert len(dictionary.lexicon) == len(words) + 1
    assert ("H", "h") in dictionary.nonsilence
    assert dictionary.silence == (("SIL",), ("SPN",))


def test_punctuation_is_removed_where_the_dictionary_has_the_bare_word(tmp_path: Path) -> None:
    words, _ = word_list(tmp_path / "lexicon.txt", "yes y\nno. n\nno n o\nna\u00efve n\n")
    forms = {
        "yes,": "yes",
        "no.": "no.",
        "no!": "no",
        "nope!": "nope!",
        "--": "",
        "nai\u0308ve": "na\u00efve",
    }
    assert {word: words.normalized(word) for word in forms} == forms


def test_the_nearest_word_is_found_quickly_among_many(tmp_path: Path) -> None:
    many = "".join(f"word{number} w\n" for number in range(100_000))
    words, _ = word_list(tmp_path / "lexicon.txt", many + "Hello h\nelephant e\n")
    assert words.nearest("HELLO") == " (did you mean 'Hello'?)"
    assert words.nearest("elefant") == " (did you mean 'elephant'?)"
    assert words.nearest("alephant") == " (did you mean 'elephant'?)"
    assert words.nearest("qqqqqqqqqqqqqqq") == ""
