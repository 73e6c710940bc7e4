"""Programs that print information about models."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

from nnet3tools.cli.options import NoOptions, OptionGroup, option, program
from nnet3tools.cli.running import Usage
from nnet3tools.errors import OptionError, naming

if TYPE_CHECKING:
    from nnet3tools.nnet.nnet import Nnet


def network_info(nnet: Nnet) -> str:
    """The text of nnet3-info: context (if inputs and outputs are the usual ones), components."""
    from nnet3tools.graph.context import compute_simple_nnet_context

    text = ""
    if nnet.is_simple():
        context = compute_simple_nnet_context(nnet)
        text = f"left-context: {context.left}\nright-context: {context.right}\n"
    return text + nnet.info()


AM_INFO_USAGE = """Write to standard output various properties of a model, of any type
(reads only the transition model)
Usage:  am-info [options] <model-in>
e.g.:
 am-info 1.mdl
"""


@program("am-info", AM_INFO_USAGE, NoOptions, num_args=1)
def am_info(options: NoOptions, args: list[str]) -> None:
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

    model = TransitionModel.load(args[0])
    print(f"number of phones {len(model.topology.phones)}")
    print(f"number of pdfs {model.num_pdfs}")
    print(f"number of transition-ids {model.num_transition_ids}")
    print(f"number of transition-states {len(model.tuples)}")


TREE_INFO_USAGE = """Print information about decision tree (mainly the number of pdfs), to stdout
Usage:  tree-info <tree-in>
e.g.: tree-info exp/tri/tree
"""


@program("tree-info", TREE_INFO_USAGE, NoOptions, num_args=1)
def tree_info(options: NoOptions, args: list[str]) -> None:
    from nnet3tools.nnet.hmm.tree import ContextDependency

    tree = ContextDependency.load(args[0])
    print(f"num-pdfs {tree.num_pdfs}")
    print(f"context-width {tree.width}")
    print(f"central-position {tree.central}")


CUDA_COMPILED_USAGE = """\
This program returns exit status 0 (success) if the package that computes on
GPUs (CuPy) is installed, and 1 otherwise.  Scripts ask before they use --use-gpu=yes.

Usage: cuda-compiled
e.g.: cuda-compiled || echo "install CuPy: bin/setup-env cuda12 (or cuda13)"
"""


@program("cuda-compiled", CUDA_COMPILED_USAGE, NoOptions, num_args=0)
def cuda_compiled(options: NoOptions, args: list[str]) -> int:
    return 0 if importlib.util.find_spec("cupy") else 1


INFO_USAGE = """Print information about a 'raw' nnet3 network, as text on standard output.

Usage:  nnet3-info [options] <raw-nnet>
 or:    nnet3-info --components[=<type>]
e.g.:
 nnet3-info 0.raw
 nnet3-info --components=TdnnComponent
See also: nnet3-am-info
"""


class InfoOptions(OptionGroup):
    components: str = option(
        "",
        "Print purpose, formula, config keys and properties of this type of component, without a "
        "type of all types, in place of a network.",
        bare="all",
    )


@program("nnet3-info", INFO_USAGE, InfoOptions, num_args=(0, 1))
def nnet3_info(options: InfoOptions, args: list[str]) -> None:
    from nnet3tools.nnet.model_file import read_nnet

    if not args and not options.components:
        raise Usage(nnet3_info.command_line.help(), 1)  # type: ignore[attr-defined]
    if args and options.components:
        raise OptionError("expected either a network or --components")
    if options.components:
        from nnet3tools.nnet.components.reference import components_reference

        sys.stdout.write(components_reference(options.components))
        return
    nnet = read_nnet(args[0])
    with naming(args[0]):
        sys.stdout.write(network_info(nnet))


NNET3_AM_INFO_USAGE = """Print information about a nnet3 acoustic model, as text on standard output.

Usage:  nnet3-am-info [options] <nnet>
e.g.:
 nnet3-am-info 0.mdl
See also: nnet3-info
"""


@program("nnet3-am-info", NNET3_AM_INFO_USAGE, NoOptions, num_args=1)
def nnet3_am_info(options: NoOptions, args: list[str]) -> None:
    from nnet3tools.cli.am_models import load_am_nnet

    model = load_am_nnet(args[0])
    sys.stdout.write(model.info() + network_info(model.nnet))
