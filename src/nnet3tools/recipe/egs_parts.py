"""Parts of example making: options, contexts, and sources of targets."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nnet3tools.cli.options import CommandLine, option
from nnet3tools.errors import OptionError
from nnet3tools.recipe.data_dir import read_lines
from nnet3tools.recipe.jobs import Job, pipe_text
from nnet3tools.recipe.plan import CopyFile, Jobs, Step


@dataclass(frozen=True)
class EgsOpts:
    """The options of get_egs.sh that users may give as one string in --egs.opts."""

    nj: int = option(6, "Number of parts that the data is split into")
    num_utts_subset: int = option(300, "Utterances in the subsets for validation and diagnostics")
    num_utts_subset_valid: int = option(0, "Utterances in the validation subset, if positive")
    num_utts_subset_train: int = option(0, "Utterances in the diagnostic subset, if positive")
    num_valid_frames_combine: int = option(0, "Frames of validation data for combining models")
    num_train_frames_combine: int = option(60000, "Frames of training data for combining models")
    num_frames_diagnostic: int = option(10000, "Frames for diagnostics")
    frame_subsampling_factor: int = option(1, "Frames of input per frame of output")
    length_tolerance: int = option(2, "Frames by which lengths of features and targets may differ")
    compress: bool = option(True, "Compress features")
    online_cmvn: bool = option(False, "Normalize with apply-cmvn-online")
    generate_egs_scp: bool = option(False, "Also write a script file for each archive")


def parse_egs_opts(text: str, kind: type = EgsOpts) -> Any:
    """The options in the text of --egs.opts; OptionError for other options or wrong values."""
    try:
        words = shlex.split(text)
        line: CommandLine[Any] = CommandLine("--egs.opts", "", kind, 0, values_apart=True)
        options, rest = line.parse(["--print-args=false", *words])
    except (OptionError, ValueError) as error:
        raise OptionError(f"--egs.opts={text}: {error}") from None
    if rest:
        raise OptionError(f"--egs.opts={text}: expected options only, found '{rest[0]}'")
    if getattr(options, "nj", 1) < 1 or options.num_utts_subset < 1:
        raise OptionError(f"--egs.opts={text}: --nj and --num-utts-subset must be positive")
    return options


@dataclass(frozen=True)
class Contexts:
    """Frames of input context on each side; chunks at an utterance's ends may have others."""

    left: int
    right: int
    left_initial: int = -1
    right_final: int = -1

    def words(self) -> list[str]:
        """The contexts as options of nnet3-get-egs."""
        found = [f"--left-context={self.left}", f"--right-context={self.right}"]
        if self.left_initial >= 0:
            found.append(f"--left-context-initial={self.left_initial}")
        if self.right_final >= 0:
            found.append(f"--right-context-final={self.right_final}")
        return found


class Targets(Protocol):
    """A source of the training targets of utterances, as the example-making plan needs it."""

    @property
    def copies(self) -> tuple[str, ...]:
        """The names of the files in the examples' directory that `steps_before` makes."""

    def steps_before(self, egs: Path) -> list[Step]:
        """The steps to run before the data is split into parts."""

    def lines(self, egs: Path) -> list[str]:
        """The lines of one script file (scp) for the targets of all utterances."""


@dataclass(frozen=True)
class GivenTargets:
    """Targets in a script file (scp): matrices if `dense`, else vectors of integers."""

    script: Path
    is_dense: bool
    num_targets: int
    copies: tuple[str, ...] = ()

    @property
    def program(self) -> tuple[str, ...]:
        """The example-making program and its option for the number of targets."""
        if self.is_dense:
            return "nnet3-get-egs-dense-targets", f"--num-targets={self.num_targets}"
        return "nnet3-get-egs", f"--num-pdfs={self.num_targets}"

    def steps_before(self, egs: Path) -> list[Step]:
        """No steps: the targets exist."""
        return []

    def lines(self, egs: Path) -> list[str]:
        """The lines of the targets' script file."""
        return read_lines(self.script)

    def rspecifier(self, script: Path) -> str:
        """The rspecifier of posteriors or matrices of the utterances in a script file."""
        if self.is_dense:
            return f"scp,s,cs:{script}"
        return "ark,s,cs:" + pipe_text(f"ali-to-post scp:{script} ark:-")


@dataclass(frozen=True)
class AlignedTargets:
    """Targets that are the pdfs of alignments."""

    ali_dir: Path
    num_pdfs: int
    num_jobs: int
    copies: tuple[str, ...] = ("ali.ark", "ali.scp")

    @property
    def program(self) -> tuple[str, ...]:
        """The example-making program and its option for the number of targets."""
        return "nnet3-get-egs", f"--num-pdfs={self.num_pdfs}"

    def steps_before(self, egs: Path) -> list[Step]:
        """The steps that copy the tree, and all alignments into one archive."""
        files = " ".join(str(self.ali_dir / f"ali.{n + 1}.gz") for n in range(self.num_jobs))
        words = (
            "copy-int-vector",
            f"ark:gunzip -c {files} |",
            f"ark,scp:{egs}/ali.ark,{egs}/ali.scp",
        )
        job = Job(f"{egs}/log/copy_alignments.log", ((words,),), "egs.1")
        return [
            CopyFile(self.ali_dir / "tree", egs / "tree"),
            Jobs((job,), (egs / "ali.scp",)),
        ]

    def lines(self, egs: Path) -> list[str]:
        """The lines of the script file that `steps_before` writes."""
        return read_lines(egs / "ali.scp")

    def rspecifier(self, script: Path) -> str:
        """The rspecifier of posteriors of the utterances in a script file."""
        pdfs = f"ali-to-pdf {self.ali_dir}/final.mdl scp:{script} ark:-"
        return "ark,s,cs:" + pipe_text(pdfs, "ali-to-post ark:- ark:-")


def ivector_id(where: Path) -> str:
    """The identifier of the iVector extractor in directory `where`; "" if there is none."""
    path = where / "final.ie.id"
    return read_lines(path)[0].strip() if path.is_file() else ""
