"""Good files of chain training in several languages, for the corpus, and who reads them."""

import contextlib
import io
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

_CONFIG = """input-node name=input dim=2
component name=a type=NaturalGradientAffineComponent input-dim=4 output-dim=4
component name=b type=NaturalGradientAffineComponent input-dim=2 output-dim=4
component-node name=a component=a input=Append(Offset(input, -1), input)
component-node name=b component=b input=input
output-node name=output-default input=a
output-node name=output-other input=b
"""
_NO_GPU = "--use-gpu=no"
_GRAPHS, _BAD_GRAPHS = "graphs", "bad-graphs"


def make_chain2_samples() -> None:
    """Write the files into the working directory, which has the files of chain training."""
    from nnet3tools.chain.example import CHAIN_EXAMPLE
    from nnet3tools.cli.nnet3_init import main as init
    from nnet3tools.io.table import SequentialTableReader, TableWriter

    Path("chain2.config").write_text(_CONFIG)
    with contextlib.redirect_stderr(io.StringIO()):
        init(["chain2.config", "chain2.raw"])
    for folder in (_GRAPHS, _BAD_GRAPHS):
        Path(folder).mkdir(exist_ok=True)
        for language in ("default", "other"):
            shutil.copy("fst.den", f"{folder}/{language}.den.fst")
    Path(_BAD_GRAPHS, "default.den.fst").unlink()
    Path(_BAD_GRAPHS, "default.den.fst").symlink_to("../BAD")
    with (
        SequentialTableReader("ark:cegs.plain", CHAIN_EXAMPLE) as examples,
        TableWriter("ark:cegs.languages", CHAIN_EXAMPLE) as writer,
    ):
        for key, example in examples:
            named = [replace(output, name="output-other") for output in example.outputs]
            writer.write(f"{key}?lang=default", example)
            writer.write(f"{key}?lang=other", example)
            writer.write(key, replace(example, outputs=named))


def chain2_targets() -> Iterator[tuple[str, tuple[str, ...]]]:
    """(file, command line that reads the file), where `BAD` stands for the damaged copy."""

    def train(model: str, graphs: str, examples: str) -> tuple[str, ...]:
        return "nnet3-chain-train2", _NO_GPU, model, graphs, f"ark:{examples}", "out"

    def combine(model: str, graphs: str, examples: str) -> tuple[str, ...]:
        models = (model, "chain2.raw")
        return "nnet3-chain-combine2", _NO_GPU, graphs, *models, f"ark:{examples}", "out"

    def add_posteriors(kind: str, model: str, graph: str, examples: str) -> tuple[str, ...]:
        options = (_NO_GPU, f"--type={kind}")
        files = (model, graph, f"ark:{examples}", "ark:out")
        return "nnet3-chain-add-post-to-egs", *options, *files

    for command in (train, combine):
        yield "chain2.raw", command("BAD", _GRAPHS, "cegs.languages")
        yield "cegs.languages", command("chain2.raw", _GRAPHS, "BAD")
        yield "fst.den", command("chain2.raw", _BAD_GRAPHS, "cegs.languages")
    for kind in ("raw", "den"):
        yield "chain.raw", add_posteriors(kind, "BAD", "fst.den", "cegs.plain")
        yield "cegs.plain", add_posteriors(kind, "chain.raw", "fst.den", "BAD")
    yield "fst.den", add_posteriors("den", "chain.raw", "BAD", "cegs.plain")
