"""Time and memory to make decoding graphs of invented lexicons and bigram models.

usage: python benchmarks/decoding_graph.py [WORDS BIGRAMS]...   by default 1000 5000 5000 30000
"""

from __future__ import annotations

import random
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from nnet3tools.fst.files import load_fst
from nnet3tools.fst.fst import Fst
from nnet3tools.lang.arpa import ArpaOptions, arpa_fst
from nnet3tools.lang.dictionary import Dictionary
from nnet3tools.lang.graphs import GraphScales, decoding_graph, lexicon_and_grammar
from nnet3tools.lang.lang_dir import LangOptions, chain_topology, prepare_lang
from nnet3tools.lang.lexicon import Pronunciation
from nnet3tools.lang.symbols import SymbolTable
from nnet3tools.lang.trees import biphone_tree
from nnet3tools.nnet.hmm.transition_model import TransitionModel

NUM_PHONES = 40


def bigram_model(num_words: int, num_bigrams: int, draws: random.Random) -> list[str]:
    """Lines of a model in which low numbers are frequent words."""

    def word() -> int:
        return min(int(draws.expovariate(8 / num_words)), num_words - 1)

    bigrams = sorted({(word(), word()) for _ in range(num_bigrams)})
    unigrams = ["-99 <s> -1", *(f"-4 w{i} -0.5" for i in range(num_words)), "-2 </s>"]
    counts = ["\\data\\", f"ngram 1={len(unigrams)}", f"ngram 2={len(bigrams)}"]
    lines = [*counts, "\\1-grams:", *unigrams, "\\2-grams:"]
    return [*lines, *(f"-1.5 w{a} w{b}" for a, b in bigrams), "\\end\\"]


def timed(name: str, make: Callable[[], Fst]) -> Fst:
    begin = time.process_time()
    fst = make()
    spent = time.process_time() - begin
    print(
        f"  {name}: {fst.num_states} states, {fst.num_arcs} arcs, {spent:.2f} s of CPU", flush=True
    )
    return fst


def measure(num_words: int, num_bigrams: int, folder: str) -> None:
    """Print the sizes and times of one graph's stages."""
    draws = random.Random(1)
    phones = [f"p{i}" for i in range(NUM_PHONES)]
    lexicon = [
        Pronunciation(f"w{i}", tuple(draws.choices(phones, k=draws.randint(3, 9))))
        for i in range(num_words)
    ]
    sets = tuple((phone,) for phone in phones)
    dictionary = Dictionary(tuple(lexicon), (("SIL",),), sets, "SIL", ())
    prepare_lang(dictionary, "w0", folder, LangOptions(False, chain_topology=True))
    words = SymbolTable.load(f"{folder}/words.txt")
    table = SymbolTable.load(f"{folder}/phones.txt")
    disambig = [number for symbol, number in table.numbers.items() if symbol.startswith("#")]
    begin, end, silent = map(words.number, ("<s>", "</s>", "#0"))
    options = ArpaOptions(words.numbers, begin, end, silent)
    model_lines = bigram_model(num_words, num_bigrams, draws)
    print(f"{num_words} words:")
    grammar = timed("G", lambda: arpa_fst(model_lines, options, "bigrams").sorted_by_input())
    lexicon_fst = load_fst(f"{folder}/L_disambig.fst")
    both = timed("LG", lambda: lexicon_and_grammar(lexicon_fst, grammar))
    numbers = list(range(1, NUM_PHONES + 2))
    topology = chain_topology(numbers)
    tree = biphone_tree([[phone] for phone in numbers], topology)
    model = TransitionModel.from_tree(tree, topology)
    timed("HCLG", lambda: decoding_graph(tree, model, both, disambig, GraphScales()))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"  {peak} MB at most", flush=True)


def main() -> None:
    sizes = list(map(int, sys.argv[1:])) or [1000, 5000, 5000, 30000]
    with TemporaryDirectory() as folder:
        for num_words, num_bigrams in zip(sizes[::2], sizes[1::2], strict=True):
            measure(num_words, num_bigrams, str(Path(folder)))


if __name__ == "__main__":
    main()
