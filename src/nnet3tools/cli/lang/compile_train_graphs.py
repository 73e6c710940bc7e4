"""compile-train-graphs: make graphs from transition ids to the words of transcripts."""

from collections.abc import Iterator

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import DataError, OptionError, naming
from nnet3tools.io import log

USAGE = """Creates training graphs (without transition-probabilities, by default)

Usage:   compile-train-graphs [options] <tree-in> <model-in> \
<lexicon-fst-in> <transcriptions-rspecifier> <graphs-wspecifier>
e.g.:
 compile-train-graphs tree 1.mdl lex.fst 'ark:sym2int.pl -f 2- words.txt text|' ark:graphs.fsts
or, with transcriptions in words:
 compile-train-graphs --word-symbol-table=words.txt tree 1.mdl lex.fst ark:text ark:graphs.fsts
"""

_KEPT_GRAPHS = 2000
"""Number of graphs cached for utterances with equal words: speed perturbations, digits, names."""


class Options(OptionGroup):
    transition_scale: float = option(
        0.0, "Scale of transition probabilities (excluding self-loops)"
    )
    self_loop_scale: float = option(0.0, "Scale of self-loop vs. non-self-loop probability mass ")
    reorder: bool = option(
        True, "Reorder transition ids for greater decoding efficiency (only true is possible here)."
    )
    rm_eps: bool = option(
        False,
        "Remove [most] epsilons before minimization (only applicable if disambig symbols present)",
    )
    batch_size: int = option(250, "For Kaldi's scripts; graphs are compiled one at a time here")
    read_disambig_syms: str = option(
        "", "File containing list of disambiguation symbols in phone symbol table"
    )
    word_symbol_table: str = option(
        "", "Symbol table for words: transcriptions are words then, not their numbers"
    )
    oov_word: str = option(
        "",
        "With --word-symbol-table: replacement for words that are not in it; if empty, "
        "utterances with such words get no graph",
    )


@program("compile-train-graphs", USAGE, Options, num_args=5)
def main(options: Options, args: list[str]) -> int:
    from functools import lru_cache

    from nnet3tools.fst.files import FST, load_fst
    from nnet3tools.io.table import TableWriter
    from nnet3tools.lang.graphs import GraphScales, TrainingGraphCompiler
    from nnet3tools.lang.symbols import read_numbers
    from nnet3tools.nnet.hmm.transition_model import TransitionModel
    from nnet3tools.nnet.hmm.tree import ContextDependency

    if not options.reorder:
        raise OptionError("--reorder=false is not possible here: self-loops come after transitions")
    tree_in, model_in, lexicon_in, transcripts, graphs_out = args
    compiler = TrainingGraphCompiler(
        ContextDependency.load(tree_in),
        TransitionModel.load(model_in),
        load_fst(lexicon_in),
        GraphScales(options.transition_scale, options.self_loop_scale),
        read_numbers(options.read_disambig_syms) if options.read_disambig_syms else [],
        options.rm_eps,
    )
    compiled = lru_cache(maxsize=_KEPT_GRAPHS)(compiler.compile)
    num_succeeded = num_failed = 0
    with TableWriter(graphs_out, FST) as writer:
        for key, words in _transcripts(options, transcripts):
            with naming(f"{transcripts}: key '{key}'"):
                graph = None if words is None else compiled(tuple(words))
            if graph is None or not graph.num_states:
                log.warning(f"Empty decoding graph for utterance {key}")
                num_failed += 1
                continue
            writer.write(key, graph)
            num_succeeded += 1
    log.log(f"compile-train-graphs: succeeded for {num_succeeded} graphs, failed for {num_failed}")
    return 0 if num_succeeded else 1


def _transcripts(options: Options, rspecifier: str) -> Iterator[tuple[str, list[int] | None]]:
    """Pairs (utterance, word numbers); None, after a warning, if a word is unknown."""
    from nnet3tools.io.holders import INT32_VECTOR, TOKEN_VECTOR
    from nnet3tools.io.table import SequentialTableReader
    from nnet3tools.lang.symbols import SymbolTable

    if not options.word_symbol_table:
        with SequentialTableReader(rspecifier, INT32_VECTOR) as reader:
            for key, numbers in reader:
                yield key, numbers.tolist()
        return
    table = SymbolTable.load(options.word_symbol_table)
    unknown = table.number(options.oov_word) if options.oov_word else None
    with SequentialTableReader(rspecifier, TOKEN_VECTOR) as words_reader:
        for key, words in words_reader:
            try:
                yield key, table.sequence(words, unknown)
            except DataError as error:
                log.warning(f"Utterance {key}: {error}")
                yield key, None
