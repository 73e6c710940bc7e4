"""Targets of frames, and the check that the network's output has as many columns."""

from __future__ import annotations

from pathlib import Path

from nnet3tools.errors import DataError, OptionError
from nnet3tools.recipe.data_dir import first_matrix_dim
from nnet3tools.recipe.egs_parts import AlignedTargets, GivenTargets
from nnet3tools.recipe.network_source import NetworkSource
from nnet3tools.recipe.options import RawTargetOptions


def given_targets(options: RawTargetOptions, network: NetworkSource) -> GivenTargets:
    """The targets of --targets-scp; OptionError or DataError if the network has other outputs."""
    if not options.targets_scp:
        raise OptionError("option --targets-scp is required, unless there is --egs.dir")
    script = Path(options.targets_scp)
    variables = f"{network.dir}/configs/vars"
    text = network.variables().get("num_targets", "")
    if text and not text.isdecimal():
        raise DataError(f"{variables}: num_targets={text}: expected a number")
    if not options.use_dense_targets:
        if not text:
            raise DataError(f"{variables}: expected num_targets=<number>")
        network.check_targets(int(text), variables)
        return GivenTargets(script, False, int(text))
    dim = first_matrix_dim(script)
    if text and int(text) != dim:
        raise DataError(
            f"{script}: targets have dimension {dim}, but {variables} says num_targets={text}"
        )
    network.check_targets(dim, str(script))
    return GivenTargets(script, True, dim)


def aligned_targets(ali_dir: Path, num_jobs: int, network: NetworkSource) -> AlignedTargets:
    """The pdfs of alignments in `num_jobs` files; DataError if the network has other outputs."""
    for name in ("final.mdl", "tree", *(f"ali.{n + 1}.gz" for n in range(num_jobs))):
        if not (ali_dir / name).is_file():
            raise DataError(f"--ali-dir={ali_dir}: there is no file '{ali_dir / name}'")
    from nnet3tools.nnet.hmm.tree import ContextDependency

    tree = ContextDependency.load(str(ali_dir / "tree"))
    network.check_targets(tree.num_pdfs, f"{ali_dir}/tree")
    return AlignedTargets(ali_dir, tree.num_pdfs, num_jobs)
