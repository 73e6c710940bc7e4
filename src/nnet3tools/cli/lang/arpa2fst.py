"""arpa2fst: convert language models in ARPA format to FSTs."""

import sys

from nnet3tools.cli.options import OptionGroup, option, program, quote
from nnet3tools.fast_dataclasses import replace

USAGE = """Convert an ARPA format language model into an FST
Usage: arpa2fst [opts] <input-arpa> <output-fst>
 e.g.: arpa2fst --disambig-symbol=#0 --read-symbol-table=data/lang/words.txt lm/input.arpa G.fst

Note: When called without switches, the output G.fst will contain
an embedded symbol table.
"""


class Options(OptionGroup):
    bos_symbol: str = option("<s>", "Beginning of sentence symbol")
    eos_symbol: str = option("</s>", "End of sentence symbol")
    disambig_symbol: str = option(
        "",
        "Disambiguator. If provided (e. g. #0), used on input side of backoff links, and <s> and "
        "</s> are replaced with epsilons",
    )
    read_symbol_table: str = option("", "Use existing symbol table")
    write_symbol_table: str = option("", "Write generated symbol table to a file")
    keep_symbols: bool = option(
        False,
        "Store symbol table with FST. Symbols always saved to FST if symbol tables are neither "
        "read or written (otherwise symbols would be lost entirely)",
    )
    ilabel_sort: bool = option(True, "Ilabel-sort the output FST")
    max_arpa_warnings: int = option(
        30, "Maximum warnings to report on ARPA parsing, 0 to disable, -1 to show all"
    )


@program("arpa2fst", USAGE, Options, num_args=(1, 2))
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.fst.binary_writer import symbol_table
    from nnet3tools.fst.files import save_fst
    from nnet3tools.io.files import open_input
    from nnet3tools.lang.arpa import ArpaOptions, arpa_fst
    from nnet3tools.lang.symbols import SymbolTable

    arpa_in, fst_out = args[0], args[1] if len(args) > 1 else "-"
    ends = [options.bos_symbol, options.eos_symbol]
    if options.read_symbol_table:
        table = SymbolTable.load(options.read_symbol_table)
        disambig = table.number(options.disambig_symbol) if options.disambig_symbol else 0
        table = table.with_symbols(ends)
    else:
        first = [options.disambig_symbol] if options.disambig_symbol else []
        table = SymbolTable.of(["<eps>"]).with_symbols([*first, *ends])
        disambig = table.number(options.disambig_symbol) if first else 0
    most = options.max_arpa_warnings
    begin, end = map(table.number, ends)
    words = ArpaOptions(table.numbers, begin, end, disambig, most if most >= 0 else sys.maxsize)
    words = replace(words, adds_words=not options.read_symbol_table)
    with open_input(arpa_in, header=False) as reader:
        fst = arpa_fst(reader.lines(), words, arpa_in)
    if options.write_symbol_table:
        table.save(options.write_symbol_table)
    kept = b""
    if options.keep_symbols or not (options.read_symbol_table or options.write_symbol_table):
        name = options.read_symbol_table or fst_out
        kept = symbol_table(_shown(name), table.numbers)
    save_fst(fst_out, fst.sorted_by_input() if options.ilabel_sort else fst, kept)


def _shown(wxfilename: str) -> str:
    """A file name as Kaldi prints it (PrintableWxfilename), for use as a symbol table's name."""
    return "standard output" if wxfilename in ("", "-") else quote(wxfilename)
