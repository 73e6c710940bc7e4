"""tree-info: prints the number of pdfs and the phone context of a decision tree."""

from nnet3tools.cli.options import NoOptions, program

USAGE = """Print information about decision tree (mainly the number of pdfs), to stdout
Usage:  tree-info <tree-in>
e.g.: tree-info exp/tri/tree
"""


@program("tree-info", USAGE, NoOptions, num_args=1)
def main(options: NoOptions, args: list[str]) -> None:
    from nnet3tools.nnet.hmm.tree import ContextDependency

    tree = ContextDependency.load(args[0])
    print(f"num-pdfs {tree.num_pdfs}")
    print(f"context-width {tree.width}")
    print(f"central-position {tree.central}")
