"""Making examples: what Kaldi's steps/nnet3/get_egs.sh and get_egs_targets.sh do, as steps."""

from __future__ import annotations

import resource
import shlex
from dataclasses import dataclass
from pathlib import Path

from nnet3tools.cli.options import CommandLine, option
from nnet3tools.errors import DataError, OptionError
from nnet3tools.recipe.data_dir import (
    DataDir,
    filter_lines,
    first_matrix_dim,
    read_lines,
    split_by_speaker,
)
from nnet3tools.recipe.jobs import Job, pipe_text
from nnet3tools.recipe.plan import Concatenate, CopyFile, Jobs, Remove, Step, WriteText

__all__ = ["AlignedTargets", "Contexts", "EgsMaking", "GivenTargets", "parse_egs_opts"]


@dataclass(frozen=True)
class EgsOpts:
    """The options that --egs.opts holds."""

    nj: int = option(6, "Number of parts that the data is split into")
    num_utts_subset: int = option(300, "Utterances in the subsets for validation and diagnostics")
    num_utts_subset_valid: int = option(0, "The same for validation, if positive")
    num_utts_subset_train: int = option(0, "The same for diagnostics on training data, if positive")
    num_valid_frames_combine: int = option(0, "Frames of validation data for combining models")
    num_train_frames_combine: int = option(60000, "Frames of training data for combining models")
    num_frames_diagnostic: int = option(10000, "Frames for diagnostics")
    frame_subsampling_factor: int = option(1, "Frames of input for one of output")
    length_tolerance: int = option(2, "By how many frames targets may be longer or shorter")
    compress: bool = option(True, "Compress features")
    online_cmvn: bool = option(False, "Normalise with apply-cmvn-online")
    generate_egs_scp: bool = option(False, "Write a script file for each archive, too")


def parse_egs_opts(text: str) -> EgsOpts:
    """The options in --egs.opts; OptionError if it has others or wrong values."""
    try:
        words = shlex.split(text)
        line = CommandLine("--egs.opts", "", EgsOpts, 0, values_apart=True)
        options, rest = line.parse(["--print-args=false", *words])
    except (OptionError, ValueError) as error:
        raise OptionError(f"--egs.opts={text}: {error}") from None
    if rest:
        raise OptionError(f"--egs.opts={text}: expected options only, found '{rest[0]}'")
    if options.nj < 1 or options.num_utts_subset < 1:
        raise OptionError(f"--egs.opts={text}: --nj and --num-utts-subset must be positive")
    return options


@dataclass(frozen=True)
class Contexts:
    """Frames of input around a chunk: left, right, left of first chunks, right of last ones."""

    left: int
    right: int
    left_initial: int = -1
    right_final: int = -1

    def words(self) -> list[str]:
        """As options of nnet3-get-egs."""
        found = [f"--left-context={self.left}", f"--right-context={self.right}"]
        if self.left_initial >= 0:
            found.append(f"--left-context-initial={self.left_initial}")
        if self.right_final >= 0:
            found.append(f"--right-context-final={self.right_final}")
        return found


@dataclass(frozen=True)
class GivenTargets:
    """Targets that a script file names: matrices, or vectors of integers if not dense."""

    script: Path
    is_dense: bool
    num_targets: int

    @property
    def program(self) -> tuple[str, ...]:
        """The program that makes examples, and how many targets there are."""
        if self.is_dense:
            return "nnet3-get-egs-dense-targets", f"--num-targets={self.num_targets}"
        return "nnet3-get-egs", f"--num-pdfs={self.num_targets}"

    def steps_before(self, egs: Path) -> list[Step]:
        """Nothing."""
        return []

    def lines(self, egs: Path) -> list[str] | None:
        """The lines of the script file."""
        return read_lines(self.script)

    def rspecifier(self, script: Path) -> str:
        """Posteriors or matrices of the utterances in a script file."""
        if self.is_dense:
            return f"scp,s,cs:{script}"
        return "ark,s,cs:" + pipe_text(f"ali-to-post scp:{script} ark:-")


@dataclass(frozen=True)
class AlignedTargets:
    """Targets that are the pdfs of alignments."""

    ali_dir: Path
    num_pdfs: int
    num_jobs: int

    @property
    def program(self) -> tuple[str, ...]:
        """The program that makes examples, and how many targets there are."""
        return "nnet3-get-egs", f"--num-pdfs={self.num_pdfs}"

    def steps_before(self, egs: Path) -> list[Step]:
        """The tree, and the alignments in one archive."""
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
        """Of the archive that `steps_before` made."""
        return read_lines(egs / "ali.scp")

    def rspecifier(self, script: Path) -> str:
        """Posteriors of the utterances in a script file."""
        pdfs = f"ali-to-pdf {self.ali_dir}/final.mdl scp:{script} ark:-"
        return "ark,s,cs:" + pipe_text(pdfs, "ali-to-post ark:- ark:-")


@dataclass(frozen=True)
class EgsMaking:
    """All that examples depend on."""

    data: DataDir
    targets: GivenTargets | AlignedTargets
    egs: Path
    contexts: Contexts
    frames_per_eg: str
    samples_per_iter: int
    srand: int
    cmvn_opts: str
    online_ivector_dir: str
    opts: EgsOpts

    # -- sizes

    @property
    def principal_frames(self) -> int:
        """The preferred number of labels of an example."""
        return int(self.frames_per_eg.split(",")[0])

    def archives(self, num_frames: int) -> tuple[int, int]:
        """Number of archives shuffled at once, and how many final ones come of each.

        As in Kaldi there are no more at once than files may be open.
        """
        total = num_frames // (self.principal_frames * self.samples_per_iter) + 1
        most_open = min(512, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        at_once, multiple = total, 1
        while at_once + 4 > most_open:
            multiple += 1
            at_once = total // multiple + 1
        return at_once, multiple

    # -- steps

    def info(self, num_frames: int, feat_dim: int) -> list[Step]:
        """egs/info, and cmvn_opts."""
        at_once, multiple = self.archives(num_frames)
        num_archives = at_once * multiple
        values: dict[str, object] = {
            "num_frames": num_frames,
            "feat_dim": feat_dim,
            "ivector_dim": self._ivector_dim(),
            "num_archives": num_archives,
            "frames_per_eg": self.frames_per_eg,
            "egs_per_archive": num_frames // (self.principal_frames * num_archives),
            "left_context": self.contexts.left,
            "right_context": self.contexts.right,
            "left_context_initial": self.contexts.left_initial,
            "right_context_final": self.contexts.right_final,
        }
        if (factor := self.opts.frame_subsampling_factor) != 1:
            values["frame_subsampling_factor"] = factor
        if self.online_ivector_dir and (name := ivector_id(Path(self.online_ivector_dir))):
            values["final.ie.id"] = name
        steps: list[Step] = [
            WriteText(self.egs / "info" / name, f"{value}\n") for name, value in values.items()
        ]
        return [*steps, WriteText(self.egs / "cmvn_opts", f"{self.cmvn_opts}\n")]

    def _ivector_dim(self) -> int:
        if not self.online_ivector_dir:
            return 0
        return first_matrix_dim(Path(self.online_ivector_dir) / "ivector_online.scp")

    def cmvn_files(self) -> list[Step]:
        """What online normalisation starts from."""
        if not self.opts.online_cmvn:
            return [Remove((f"{self.egs}/online_cmvn",))]
        stats = self.egs / "global_cmvn.stats"
        words = ("matrix-sum", "--binary=false", f"scp:{self.data.path}/cmvn.scp", str(stats))
        job = Job(f"{self.egs}/log/sum_cmvn.log", ((words,),), "egs.1")
        return [Jobs((job,), (stats,)), WriteText(self.egs / "online_cmvn", "")]

    def lists(self) -> tuple[dict[str, list[str]], list[Step]]:
        """Utterances of each part ("valid", "train_subset", "1", "2", ...), and files of them."""
        num_valid = self.opts.num_utts_subset_valid or self.opts.num_utts_subset
        num_train = self.opts.num_utts_subset_train or self.opts.num_utts_subset
        valid, train_subset = self.data.held_out(num_valid, num_train)
        held = set(valid)
        parts = {"valid": valid, "train_subset": train_subset}
        for n, part in enumerate(split_by_speaker(self.data.utt2spk(), self.opts.nj), start=1):
            parts[str(n)] = [utterance for utterance in part if utterance not in held]
        files: list[Step] = [
            WriteText(self.egs / f"{name}_uttlist", "".join(f"{u}\n" for u in parts[name]))
            for name in ("valid", "train_subset")
        ]
        return parts, files

    def scripts(self, parts: dict[str, list[str]]) -> list[Step]:
        """Script files of features and targets, and maps of speakers, for each part."""
        features, targets = self.data.lines("feats.scp"), self.targets.lines(self.egs) or []
        utt2spk = self.data.lines("utt2spk")
        steps: list[Step] = []
        for name, utterances in parts.items():
            wanted = set(utterances)
            chosen = filter_lines(features, wanted)
            if not chosen:
                raise DataError(
                    f"{self.data.path}/feats.scp has none of the {len(wanted)} utterances of part "
                    f"'{name}'"
                )
            steps.append(_lines_at(self.egs / f"feats.{name}.scp", chosen))
            steps.append(_lines_at(self.egs / f"targets.{name}.scp", filter_lines(targets, wanted)))
            if self.opts.online_cmvn:
                steps.append(
                    _lines_at(self.egs / f"spk2utt.{name}", _spk2utt(filter_lines(utt2spk, wanted)))
                )
        return steps

    def _features(self, name: str) -> str:
        script = f"{self.egs}/feats.{name}.scp"
        data = self.data.path
        if self.opts.online_cmvn:
            program = (
                f"apply-cmvn-online {self.cmvn_opts} --spk2utt=ark:{self.egs}/spk2utt.{name} "
                f"{self.egs}/global_cmvn.stats scp:{script} ark:-"
            )
        else:
            program = (
                f"apply-cmvn {self.cmvn_opts} --utt2spk=ark:{data}/utt2spk scp:{data}/cmvn.scp "
                f"scp:{script} ark:-"
            )
        return "ark,s,cs:" + pipe_text(program)

    def _get_egs(self, name: str, out: str) -> tuple[str, ...]:
        opts = self.opts
        ivectors: list[str] = []
        if where := self.online_ivector_dir:
            period = read_lines(Path(where) / "ivector_period")[0].strip()
            ivectors = [
                f"--online-ivectors=scp:{where}/ivector_online.scp",
                f"--online-ivector-period={period}",
            ]
        return (
            *self.targets.program,
            f"--frame-subsampling-factor={opts.frame_subsampling_factor}",
            f"--length-tolerance={opts.length_tolerance}",
            *ivectors,
            *self.contexts.words(),
            f"--compress={str(opts.compress).lower()}",
            f"--num-frames={self.frames_per_eg}",
            self._features(name),
            self.targets.rspecifier(self.egs / f"targets.{name}.scp"),
            out,
        )

    def _job(self, log: str, *programs: tuple[str, ...], home: str = "egs.1") -> Job:
        return Job(f"{self.egs}/log/{log}.log", (programs,), home)

    def subsets(self) -> list[Step]:
        """Examples for validation, for diagnostics on training data, and for combining models."""
        egs, opts = self.egs, self.opts
        cut = tuple(
            self._job(
                f"create_{name}_subset", self._get_egs(full, f"ark:{egs}/{full}_all.egs"), home=home
            )
            for name, full, home in (
                ("valid", "valid", "egs.1"),
                ("train", "train_subset", "egs.2"),
            )
        )
        chosen = []
        for name, full, what, frames in (
            ("valid", "valid", "combine", opts.num_valid_frames_combine),
            ("valid", "valid", "diagnostic", opts.num_frames_diagnostic),
            ("train", "train_subset", "combine", opts.num_train_frames_combine),
            ("train", "train_subset", "diagnostic", opts.num_frames_diagnostic),
        ):
            count = frames // self.principal_frames
            out = f"ark:{egs}/{name}_{what}.egs"
            if opts.generate_egs_scp and what == "diagnostic":
                out = f"ark,scp:{egs}/{name}_{what}.egs,{egs}/{name}_{what}.scp"
            words = ("nnet3-subset-egs", f"--n={count}", f"ark:{egs}/{full}_all.egs", out)
            chosen.append(
                self._job(
                    f"create_{name}_subset_{what}",
                    words,
                    home="egs.1" if name == "valid" else "egs.2",
                )
            )
        parts = (egs / "valid_combine.egs", egs / "train_combine.egs")
        return [
            Jobs(cut, (egs / "valid_all.egs", egs / "train_subset_all.egs")),
            Jobs(
                tuple(chosen), (*parts, egs / "valid_diagnostic.egs", egs / "train_diagnostic.egs")
            ),
            *self._combined(parts),
        ]

    def _combined(self, parts: tuple[Path, ...]) -> list[Step]:
        egs = self.egs
        if not self.opts.generate_egs_scp:
            return [Concatenate(egs / "combine.egs", parts, "no examples to combine models with")]
        words = (
            "nnet3-copy-egs",
            f"ark:cat {' '.join(map(str, parts))} |",
            f"ark,scp:{egs}/combine.egs,{egs}/combine.scp",
        )
        return [Jobs((self._job("copy_combine", words),), (egs / "combine.scp",))]

    def everything(self, num_frames: int) -> list[Step]:
        """All examples, at random over so many archives."""
        at_once, _ = self.archives(num_frames)
        jobs = []
        for n in range(1, self.opts.nj + 1):
            outs = [f"ark:{self.egs}/egs_orig.{n}.{m}.ark" for m in range(1, at_once + 1)]
            copy = ("nnet3-copy-egs", "--random=true", f"--srand={n + self.srand}", "ark:-", *outs)
            jobs.append(
                self._job(f"get_egs.{n}", self._get_egs(str(n), "ark:-"), copy, home=f"egs.{n}")
            )
        outputs = [
            self.egs / f"egs_orig.{n}.{m}.ark"
            for n in range(1, self.opts.nj + 1)
            for m in range(1, at_once + 1)
        ]
        return [Jobs(tuple(jobs), tuple(outputs))]

    def shuffled(self, num_frames: int) -> list[Step]:
        """The archives in random order, egs.1.ark and so on."""
        at_once, multiple = self.archives(num_frames)
        jobs = []
        for m in range(1, at_once + 1):
            sources = [f"{self.egs}/egs_orig.{n}.{m}.ark" for n in range(1, self.opts.nj + 1)]
            numbers = range((m - 1) * multiple + 1, m * multiple + 1)
            outs = [self._archive_out(number) for number in numbers]
            words = (
                "nnet3-shuffle-egs",
                f"--srand={m + self.srand}",
                f"ark:cat {' '.join(sources)} |",
            )
            programs: tuple[tuple[str, ...], ...] = ((*words, outs[0]),)
            if multiple > 1:
                programs = ((*words, "ark:-"), ("nnet3-copy-egs", "ark:-", *outs))
            jobs.append(self._job(f"shuffle.{m}", *programs, home=f"egs.{m}"))
        numbers = range(1, at_once * multiple + 1)
        steps: list[Step] = [Jobs(tuple(jobs), tuple(self.egs / f"egs.{n}.ark" for n in numbers))]
        if self.opts.generate_egs_scp:
            scripts = tuple(self.egs / f"egs.{n}.scp" for n in numbers)
            steps.append(Concatenate(self.egs / "egs.scp", scripts))
        return steps

    def _archive_out(self, number: int) -> str:
        archive = f"{self.egs}/egs.{number}"
        if self.opts.generate_egs_scp:
            return f"ark,scp:{archive}.ark,{archive}.scp"
        return f"ark:{archive}.ark"

    def tidied(self) -> list[Step]:
        """What is not needed any more goes."""
        names = [
            "valid_all.egs",
            "train_subset_all.egs",
            "valid_combine.egs",
            "train_combine.egs",
            "feats.*.scp",
            "targets.*.scp",
            "spk2utt.*",
            "ali.ark",
            "ali.scp",
        ]
        if self.opts.generate_egs_scp:
            names.append("egs.[0-9]*.scp")
        names.append("egs_orig.*.ark")  # last: while there is one, the stage is not done
        return [Remove(tuple(f"{self.egs}/{name}" for name in names))]


def ivector_id(where: Path) -> str:
    """What names the extractor of iVectors, "" if nothing does."""
    path = where / "final.ie.id"
    return read_lines(path)[0].strip() if path.is_file() else ""


def _lines_at(path: Path, lines: list[str]) -> WriteText:
    return WriteText(path, "".join(f"{line}\n" for line in lines))


def _spk2utt(lines: list[str]) -> list[str]:
    of_speaker: dict[str, list[str]] = {}
    for line in lines:
        utterance, speaker = line.split()
        of_speaker.setdefault(speaker, []).append(utterance)
    return [f"{speaker} {' '.join(found)}" for speaker, found in of_speaker.items()]
