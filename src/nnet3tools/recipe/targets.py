"""Targets of training: where they come from, and the check that the network's output fits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nnet3tools.errors import DataError, OptionError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.checked import is_file
from nnet3tools.nnet.hmm.tree import ContextDependency
from nnet3tools.number_text import parse_int
from nnet3tools.recipe.chain_experiment import ChainExperiment
from nnet3tools.recipe.chain_options import LatticeChainOptions
from nnet3tools.recipe.data_dir import first_matrix_dim, number_of_jobs
from nnet3tools.recipe.egs_options import ChainEgsOpts
from nnet3tools.recipe.experiment import Experiment
from nnet3tools.recipe.jobs import Job, Pipeline, unzipped
from nnet3tools.recipe.plan import Jobs, Step, copy_file


@dataclass(frozen=True)
class Targets:
    """The training targets of utterances: script files, which `steps` make, and how to read them.

    `reading(script)` is the pipeline that turns a script's objects into targets, () for none.
    `program` makes examples of targets of frames; its words include the option for the number of
    targets. `copies` are names of files in egs/ that `steps` make and that are removed at the end.
    """

    lists: tuple[Path, ...]
    """Script files (scp), which have a line for each utterance."""
    reading: Callable[[Path], Pipeline] = lambda script: ()
    program: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    copies: tuple[str, ...] = ()


def _copied(e: Experiment, name: str, program: str, objects: str, log: str) -> Targets:
    """Targets in the archive `name`.ark, which a step copies with `program` from `objects`.

    `objects` is an rspecifier of alignments or lattices, `log` the name of the step's log.
    """
    egs, ark, scp = e.egs_path, f"{name}.ark", f"{name}.scp"
    words = (program, objects, f"ark,scp:{egs / ark},{egs / scp}")
    step = Jobs((Job(f"{egs}/log/{log}.log", ((words,),), "egs.1"),), (egs / scp,))
    return Targets((egs / scp,), steps=(step,), copies=(ark, scp))


def frame_targets(e: Experiment) -> Targets:
    """The targets of frames: those of --targets-scp, or the pdfs of alignments.

    OptionError or DataError if there are no targets, or the network's output has another dimension.
    """
    return _aligned_targets(e) if e.am is not None else _given_targets(e)


def _given_targets(e: Experiment) -> Targets:
    assert e.raw is not None
    if not e.raw.targets_scp:
        raise OptionError("option --targets-scp is required, unless there is --egs.dir")
    script, network = Path(e.raw.targets_scp), e.network
    variables = f"{network.dir}/configs/vars"
    text = network.variables().get("num_targets", "")
    number = parse_int(text, 0)
    if text and number is None:
        raise DataError(f"{variables}: num_targets={text[:40]}: expected a number")
    if not e.raw.use_dense_targets:
        if number is None:
            raise DataError(f"{variables}: expected num_targets=<number>")
        network.check_targets(number, variables)
        return Targets(
            (script,),
            lambda script: (("ali-to-post", f"scp:{script}", "ark:-"),),
            ("nnet3-get-egs", f"--num-pdfs={number}"),
        )
    dim = first_matrix_dim(script)
    if number not in (None, dim):
        raise DataError(
            f"{script}: targets have dimension {dim}, but {variables} says num_targets={text}"
        )
    network.check_targets(dim, str(script))
    return Targets((script,), program=("nnet3-get-egs-dense-targets", f"--num-targets={dim}"))


def _aligned_targets(e: Experiment) -> Targets:
    ali, num_jobs = e.tree_dir, e.num_ali_jobs()
    assert ali is not None
    for name in ("final.mdl", "tree", *(f"ali.{n + 1}.gz" for n in range(num_jobs))):
        if not is_file(ali / name):
            raise DataError(f"--ali-dir={ali}: there is no file '{ali / name}'")
    num_pdfs = ContextDependency.load(str(ali / "tree")).num_pdfs
    e.network.check_targets(num_pdfs, f"{ali}/tree")
    alignments = unzipped(ali, "ali", num_jobs)
    copied = _copied(e, "ali", "copy-int-vector", alignments, "copy_alignments")
    return Targets(
        copied.lists,
        lambda script: (
            ("ali-to-pdf", f"{ali}/final.mdl", f"scp:{script}", "ark:-"),
            ("ali-to-post", "ark:-", "ark:-"),
        ),
        ("nnet3-get-egs", f"--num-pdfs={num_pdfs}"),
        (copy_file(ali / "tree", e.egs_path / "tree"), *copied.steps),
        copied.copies,
    )


# -- chains


def check_pdfs(e: ChainExperiment) -> None:
    """DataError if the number of the network's outputs is not the tree's number of pdfs."""
    tree = str(e.tree_dir / "tree")
    e.network.check_targets(ContextDependency.load(tree).num_pdfs, tree)


def transcript_graphs(e: ChainExperiment) -> Targets:
    """The targets of end-to-end training: transcript graphs (fst.N.scp in --tree-dir)."""
    lists = _parts(e.tree_dir, "fst.{}.scp", e.num_ali_jobs())
    return Targets(lists, lambda script: (("fstcopy", f"scp:{script}", "ark:-"),))


def supervision(e: ChainExperiment, opts: ChainEgsOpts) -> Targets:
    """The targets of chain training: lattices (lat.N.gz) or, without --lat-dir, alignments."""
    o = e.options
    assert isinstance(o, LatticeChainOptions)
    source = Path(o.lat_dir or o.tree_dir)
    kind, program = ("lat", "lattice-copy") if o.lat_dir else ("ali", "copy-int-vector")
    num_jobs = number_of_jobs(source)
    _parts(source, f"{kind}.{{}}.gz", num_jobs)
    objects = unzipped(source, kind, num_jobs)
    copied = _copied(e, "supervision", program, objects, "copy_supervision")
    to_phones = (
        ("lattice-align-phones", "--replace-output-symbols=true")
        if o.lat_dir
        else ("ali-to-phones", "--write-lengths=true")
    )
    get = (
        "chain-get-supervision",
        f"--lattice-input={'true' if o.lat_dir else 'false'}",
        f"--frame-subsampling-factor={o.chain.alignment_subsampling_factor}",
        f"--right-tolerance={o.chain.right_tolerance}",
        f"--left-tolerance={o.chain.left_tolerance}",
        *(() if opts.constrained else ("--convert-to-pdfs=false",)),
        *((f"--lm-scale={opts.lattice_lm_scale}",) if opts.lattice_lm_scale else ()),
        *(f"{e.dir}/tree", f"{e.dir}/0.trans_mdl", "ark:-", "ark:-"),
    )
    return Targets(
        copied.lists,
        lambda script: ((*to_phones, f"{source}/final.mdl", f"scp:{script}", "ark:-"), get),
        steps=copied.steps,
        copies=copied.copies,
    )


def _parts(folder: Path, pattern: str, count: int) -> tuple[Path, ...]:
    """The files named `pattern` with {} replaced by 1 to `count`; DataError if one is missing."""
    paths = tuple(folder / pattern.format(n) for n in range(1, count + 1))
    for path in paths:
        if not is_file(path):
            raise DataError(f"there is no file '{path}': num_jobs there is {count}")
    return paths
