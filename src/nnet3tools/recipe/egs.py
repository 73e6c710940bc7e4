"""Making examples: the steps of Kaldi's steps/nnet3/get_egs.sh and get_egs_targets.sh."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnet3tools.errors import DataError
from nnet3tools.recipe.data_dir import (
    DataDir,
    filter_lines,
    first_matrix_dim,
    read_lines,
    split_by_speaker,
)
from nnet3tools.recipe.egs_parts import Contexts, ivector_id
from nnet3tools.recipe.jobs import Job, Pipeline, pipe_text
from nnet3tools.recipe.objective import FRAME_NAMES, ExampleNames
from nnet3tools.recipe.plan import Concatenate, Jobs, Remove, Step, WriteText


@dataclass(frozen=True)
class EgsMaking:
    """Plans the programs that make examples, from everything that the examples depend on."""

    data: DataDir
    targets: Any
    """A Targets, with `program` and `rspecifier` for frames or `supervision` for chains."""
    egs: Path
    contexts: Contexts
    frames_per_eg: str
    samples_per_iter: int
    srand: int
    cmvn_opts: str
    online_ivector_dir: str
    opts: Any
    """An EgsOpts, or for chains a ChainEgsOpts or E2eEgsOpts."""
    names: ExampleNames = FRAME_NAMES

    # -- sizes

    @property
    def num_parts(self) -> int:
        """The number of parts that the data is split into."""
        return int(self.opts.nj)

    @property
    def principal_frames(self) -> int:
        """The preferred number of labels of an example."""
        return int(self.frames_per_eg.split(",")[0])

    def num_archives(self, num_frames: int) -> int:
        """The number of archives such that each has about --trainer.samples-per-iter examples."""
        return num_frames // (self.principal_frames * self.samples_per_iter) + 1

    def archives(self, num_frames: int) -> tuple[int, int]:
        """The number of groups of archives, and the number of final archives in each group.

        As in Kaldi, the first number is limited by the number of files that may be open.
        """
        total = self.num_archives(num_frames)
        most_open = min(512, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        num_groups, multiple = total, 1
        while num_groups + 4 > most_open:
            multiple += 1
            num_groups = total // multiple + 1
        return num_groups, multiple

    def check(self) -> None:
        """DataError if the data directory lacks files or has too few utterances."""
        for name in ("feats.scp", "utt2spk", "cmvn.scp"):
            self.data.file(name)
        self.held_out()

    # -- steps

    def info(self, num_frames: int, feat_dim: int) -> list[Step]:
        """The steps that write egs/info and cmvn_opts."""
        num_groups, multiple = self.archives(num_frames)
        num_archives = num_groups * multiple
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
        values |= self.info_values()
        if self.online_ivector_dir and (name := ivector_id(Path(self.online_ivector_dir))):
            values["final.ie.id"] = name
        steps: list[Step] = [
            WriteText(self.egs / "info" / name, f"{value}\n") for name, value in values.items()
        ]
        return [*steps, WriteText(self.egs / "cmvn_opts", f"{self.cmvn_opts}\n")]

    def info_values(self) -> dict[str, Any]:
        """The entries of egs/info that differ between kinds of examples."""
        factor = self.opts.frame_subsampling_factor
        return {} if factor == 1 else {"frame_subsampling_factor": factor}

    def _ivector_dim(self) -> int:
        if not self.online_ivector_dir:
            return 0
        return first_matrix_dim(Path(self.online_ivector_dir) / "ivector_online.scp")

    def cmvn_files(self) -> list[Step]:
        """The steps that write the initial statistics of online normalization."""
        if not self.opts.online_cmvn:
            return [Remove((f"{self.egs}/online_cmvn",))]
        stats = self.egs / "global_cmvn.stats"
        words = ("matrix-sum", "--binary=false", f"scp:{self.data.path}/cmvn.scp", str(stats))
        job = Job(f"{self.egs}/log/sum_cmvn.log", ((words,),), "egs.1")
        return [Jobs((job,), (stats,)), WriteText(self.egs / "online_cmvn", "")]

    def held_out(self) -> tuple[list[str], list[str]]:
        """The utterances for validation, and training utterances for diagnostics."""
        num_valid = self.opts.num_utts_subset_valid or self.opts.num_utts_subset
        num_train = self.opts.num_utts_subset_train or self.opts.num_utts_subset
        return self.data.held_out(num_valid, num_train)

    def lists(self) -> tuple[dict[str, list[str]], list[Step]]:
        """The utterances by part ("valid", "train_subset", "1", ...), and steps to write them."""
        valid, train_subset = self.held_out()
        held = set(valid)
        parts = {"valid": valid, "train_subset": train_subset}
        for n, part in enumerate(split_by_speaker(self.data.utt2spk(), self.num_parts), start=1):
            parts[str(n)] = [utterance for utterance in part if utterance not in held]
        files: list[Step] = [
            WriteText(self.egs / f"{name}_uttlist", "".join(f"{u}\n" for u in parts[name]))
            for name in ("valid", "train_subset")
        ]
        return parts, files

    def scripts(self, parts: dict[str, list[str]]) -> list[Step]:
        """The steps that write, for each part, scripts of features and targets and speaker maps."""
        features, targets = self.data.lines("feats.scp"), self.targets.lines(self.egs)
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

    def _ivector_words(self) -> list[str]:
        if not (where := self.online_ivector_dir):
            return []
        period = read_lines(Path(where) / "ivector_period")[0].strip()
        return [
            f"--online-ivectors=scp:{where}/ivector_online.scp",
            f"--online-ivector-period={period}",
        ]

    def _get_egs(self, name: str, out: str) -> Pipeline:
        """The pipeline that writes the examples of the part `name` to `out`."""
        words = (
            *self.targets.program,
            f"--frame-subsampling-factor={self.opts.frame_subsampling_factor}",
            f"--length-tolerance={self.opts.length_tolerance}",
            *self._ivector_words(),
            *self.contexts.words(),
            f"--compress={str(self.opts.compress).lower()}",
            f"--num-frames={self.frames_per_eg}",
            self._features(name),
            self.targets.rspecifier(self.egs / f"targets.{name}.scp"),
            out,
        )
        return (words,)

    def _subset_sizes(self) -> tuple[tuple[str, str, int], ...]:
        """For each subset of examples: the part it is from, its purpose, its number of examples."""
        opts, frames = self.opts, self.principal_frames
        return (
            ("valid", "combine", opts.num_valid_frames_combine // frames),
            ("valid", "diagnostic", opts.num_frames_diagnostic // frames),
            ("train", "combine", opts.num_train_frames_combine // frames),
            ("train", "diagnostic", opts.num_frames_diagnostic // frames),
        )

    def _job(self, log: str, *programs: tuple[str, ...], home: str = "egs.1") -> Job:
        return Job(f"{self.egs}/log/{log}.log", (programs,), home)

    def subsets(self) -> list[Step]:
        """The steps that make examples for validation, diagnostics, and combining models."""
        egs, file = self.egs, self.names.subset
        cut = tuple(
            self._job(
                f"create_{name}_subset",
                *self._get_egs(full, f"ark:{egs}/{file(full + '_all')}"),
                home=home,
            )
            for name, full, home in (
                ("valid", "valid", "egs.1"),
                ("train", "train_subset", "egs.2"),
            )
        )
        chosen = []
        for name, what, count in self._subset_sizes():
            out = f"ark:{egs}/{file(f'{name}_{what}')}"
            if self.opts.generate_egs_scp and what == "diagnostic":
                out = f"ark,scp:{egs}/{file(f'{name}_{what}')},{egs}/{name}_{what}.scp"
            full = "valid_all" if name == "valid" else "train_subset_all"
            subset = self.names.program("subset-egs")
            words = (subset, f"--n={count}", f"ark:{egs}/{file(full)}", out)
            chosen.append(
                self._job(
                    f"create_{name}_subset_{what}",
                    words,
                    home="egs.1" if name == "valid" else "egs.2",
                )
            )
        parts = (egs / file("valid_combine"), egs / file("train_combine"))
        judging = (egs / file("valid_diagnostic"), egs / file("train_diagnostic"))
        return [
            Jobs(cut, (egs / file("valid_all"), egs / file("train_subset_all"))),
            Jobs(tuple(chosen), (*parts, *judging)),
            *self._combined(parts),
        ]

    def _combined(self, parts: tuple[Path, ...]) -> list[Step]:
        egs, combine = self.egs, self.egs / self.names.subset("combine")
        if not self.opts.generate_egs_scp:
            return [Concatenate(combine, parts, "no examples to combine models with")]
        words = (
            self.names.program("copy-egs"),
            f"ark:cat {' '.join(map(str, parts))} |",
            f"ark,scp:{combine},{egs}/combine.scp",
        )
        return [Jobs((self._job("copy_combine", words),), (egs / "combine.scp",))]

    def everything(self, num_frames: int) -> list[Step]:
        """The steps that make all training examples and spread them at random over the archives."""
        num_groups, _ = self.archives(num_frames)
        jobs = []
        for n in range(1, self.num_parts + 1):
            outs = [f"ark:{self._unshuffled(n, m)}" for m in range(1, num_groups + 1)]
            program = self.names.program("copy-egs")
            copy = (program, "--random=true", f"--srand={n + self.srand}", "ark:-", *outs)
            cut = self._get_egs(str(n), "ark:-")
            jobs.append(self._job(f"get_egs.{n}", *cut, copy, home=f"egs.{n}"))
        outputs = [
            self._unshuffled(n, m)
            for n in range(1, self.num_parts + 1)
            for m in range(1, num_groups + 1)
        ]
        return [Jobs(tuple(jobs), tuple(outputs))]

    def _unshuffled(self, part: int, number: int) -> Path:
        """The path of the intermediate archive of part `part` for group `number`."""
        return self.egs / f"{self.names.files}_orig.{part}.{number}.ark"

    def _shuffle(self, group: int, sources: str) -> Pipeline:
        """The pipeline that shuffles the examples of a group, but for its last argument."""
        program = self.names.program("shuffle-egs")
        return ((program, f"--srand={group + self.srand}", sources),)

    def shuffled(self, num_frames: int) -> list[Step]:
        """The steps that write the final archives (egs.1.ark, ...) in random order."""
        num_groups, multiple = self.archives(num_frames)
        jobs = []
        for m in range(1, num_groups + 1):
            sources = [str(self._unshuffled(n, m)) for n in range(1, self.num_parts + 1)]
            numbers = range((m - 1) * multiple + 1, m * multiple + 1)
            outs = [self._archive_out(number) for number in numbers]
            *before, words = self._shuffle(m, f"ark:cat {' '.join(sources)} |")
            programs: Pipeline = (*before, (*words, outs[0]))
            if multiple > 1:
                copy = (self.names.program("copy-egs"), "ark:-", *outs)
                programs = (*before, (*words, "ark:-"), copy)
            jobs.append(self._job(f"shuffle.{m}", *programs, home=f"egs.{m}"))
        numbers = range(1, num_groups * multiple + 1)
        archives = tuple(self.egs / self.names.archive(n) for n in numbers)
        steps: list[Step] = [Jobs(tuple(jobs), archives)]
        if self.opts.generate_egs_scp:
            scripts = tuple(self.egs / self.names.archive(n, "scp") for n in numbers)
            steps.append(Concatenate(self.egs / f"{self.names.files}.scp", scripts))
        return steps

    def _archive_out(self, number: int) -> str:
        archive = f"{self.egs}/{self.names.archive(number)}"
        if self.opts.generate_egs_scp:
            return f"ark,scp:{archive},{self.egs}/{self.names.archive(number, 'scp')}"
        return f"ark:{archive}"

    def tidied(self) -> list[Step]:
        """The step that removes the intermediate files of making examples."""
        subsets = ("valid_all", "train_subset_all", "valid_combine", "train_combine")
        names = [
            *map(self.names.subset, subsets),
            *("feats.*.scp", "targets.*.scp", "spk2utt.*"),
            *self.targets.copies,
        ]
        if self.opts.generate_egs_scp:
            names.append(self.names.archive("[0-9]*", "scp"))
        # The driver looks for these files to tell whether the stage is done, so they go last.
        names.append(f"{self.names.files}_orig.*.ark")
        return [Remove(tuple(f"{self.egs}/{name}" for name in names))]


def _lines_at(path: Path, lines: list[str]) -> WriteText:
    return WriteText(path, "".join(f"{line}\n" for line in lines))


def _spk2utt(lines: list[str]) -> list[str]:
    of_speaker: dict[str, list[str]] = {}
    for line in lines:
        utterance, speaker = line.split()
        of_speaker.setdefault(speaker, []).append(utterance)
    return [f"{speaker} {' '.join(found)}" for speaker, found in of_speaker.items()]
