"""Making examples: the steps of Kaldi's steps/nnet3/get_egs.sh and get_egs_targets.sh."""

from __future__ import annotations

import math
import resource
import shlex
from functools import cached_property
from pathlib import Path
from typing import Any

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.recipe.data_dir import DataDir, filter_lines, read_lines, split_by_speaker
from nnet3tools.recipe.egs_dir import info_steps
from nnet3tools.recipe.experiment import Experiment
from nnet3tools.recipe.jobs import Job, Pipeline, pipe_text
from nnet3tools.recipe.objective import Objective
from nnet3tools.recipe.plan import Concatenate, Jobs, Later, Remove, Step, WriteText, lines_at
from nnet3tools.recipe.targets import Targets

SUBSETS = ("valid_combine", "valid_diagnostic", "train_combine", "train_diagnostic")
_SOURCES = {"valid": ("valid", "egs.1"), "train": ("train_subset", "egs.2")}
"""For each kind of subset, the part of the data that it is from, and the home of its jobs."""


@dataclass(frozen=True)
class EgsMaking:
    """Plans the steps that make an experiment's examples; `opts` has the options in --egs.opts."""

    experiment: Experiment
    targets: Targets
    opts: Any
    """An EgsOpts, or for chains a ChainEgsOpts or E2eEgsOpts."""

    @property
    def _egs(self) -> Path:
        return self.experiment.egs_path

    @property
    def _names(self) -> Objective:
        return self.experiment.objective

    @property
    def _data(self) -> DataDir:
        return self.experiment.data

    # -- sizes

    @property
    def _num_parts(self) -> int:
        """The number of parts of the data; one job makes the examples of each part."""
        return int(self.opts.nj)

    @cached_property
    def _num_frames(self) -> int:
        return self._data.num_frames()

    @property
    def _labels_per_eg(self) -> int:
        """The preferred number of labels (output frames) of an example."""
        return int(self.experiment.frames_per_eg.split(",")[0])

    @property
    def _frames_per_archive(self) -> int:
        """The approximate number of frames in an archive, from --trainer.samples-per-iter."""
        return self._labels_per_eg * self.experiment.options.trainer.samples_per_iter

    @property
    def _archives(self) -> tuple[int, int]:
        """The number of groups of training examples, and of final archives made from each group.

        As in Kaldi, the number of groups is limited by the number of files that may be open.
        """
        total = self._num_frames // self._frames_per_archive + 1
        most_open = min(512, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        num_groups, multiple = total, 1
        while num_groups + 4 > most_open:
            multiple += 1
            num_groups = total // multiple + 1
        return num_groups, multiple

    def check(self) -> None:
        """Check the data; DataError if files are missing or there are too few utterances."""
        for name in ("feats.scp", "utt2spk", "cmvn.scp"):
            self._data.file(name)
        self._held_out()

    # -- steps

    def steps(self) -> list[Step]:
        """The steps that make the examples, starting with stage --egs.stage."""
        e, parts = self.experiment, self._parts()
        found: list[Step] = [
            *(
                lines_at(self._egs / f"{part}_uttlist", parts[part])
                for part, _ in _SOURCES.values()
            ),
            *info_steps(e, self._num_frames, math.prod(self._archives), self._info_values()),
            *self._cmvn_files(),
            *self.targets.steps,
            Later(lambda: self._scripts(parts)),
        ]
        if e.options.egs.stage <= 3:
            found += self._subsets()
            if e.options.trainer.optimization.do_final_combination:
                found.append(self._combination_check())
        if e.options.egs.stage <= 4:
            found.append(self._everything())
        if e.options.egs.stage <= 5:
            found += self._shuffled()
        return [*found, self._tidied()]

    def _step(self, log: str, *programs: tuple[str, ...], out: Path | None = None) -> Jobs:
        """A step that pipes `programs` (words) to make `out`, if given, with log name `log`."""
        return Jobs((self._job(log, *programs),), () if out is None else (out,))

    def _job(self, log: str, *programs: tuple[str, ...], home: str = "egs.1") -> Job:
        return Job(f"{self._egs}/log/{log}.log", (programs,), home)

    def _info_values(self) -> dict[str, Any]:
        """Values for files in egs/info that depend on the kind of examples, by file name."""
        factor = self.opts.frame_subsampling_factor
        return {} if factor == 1 else {"frame_subsampling_factor": factor}

    def _cmvn_files(self) -> list[Step]:
        """Steps that write egs/global_cmvn.stats, with which online normalization begins.

        Without online normalization, the step removes the mark egs/online_cmvn of an earlier run.
        """
        if not self.opts.online_cmvn:
            return [Remove((f"{self._egs}/online_cmvn",))]
        stats = self._egs / "global_cmvn.stats"
        words = ("matrix-sum", "--binary=false", f"scp:{self._data.path}/cmvn.scp", str(stats))
        step = self._step("sum_cmvn", words, out=stats)
        return [step, WriteText(self._egs / "online_cmvn", "")]

    def _held_out(self) -> tuple[list[str], list[str]]:
        """A pair: utterances for validation, and training utterances for diagnostics."""
        num_valid = self.opts.num_utts_subset_valid or self.opts.num_utts_subset
        num_train = self.opts.num_utts_subset_train or self.opts.num_utts_subset
        return self._data.held_out(num_valid, num_train)

    def _parts(self) -> dict[str, list[str]]:
        """The utterances of each set: "valid", "train_subset" (diagnostics), parts "1", "2", ..."""
        valid, train_subset = self._held_out()
        held = set(valid)
        parts = {"valid": valid, "train_subset": train_subset}
        for n, part in enumerate(split_by_speaker(self._data.utt2spk(), self._num_parts), start=1):
            parts[str(n)] = [utterance for utterance in part if utterance not in held]
        return parts

    def _scripts(self, parts: dict[str, list[str]]) -> list[Step]:
        """Steps that write, per set in `parts`, scp files of features and targets, and spk2utt."""
        features, utt2spk = self._data.lines("feats.scp"), self._data.lines("utt2spk")
        targets = [line for path in self.targets.lists for line in read_lines(path)]
        steps: list[Step] = []
        for name, utterances in parts.items():
            wanted = set(utterances)
            chosen = filter_lines(features, wanted)
            if not chosen:
                raise DataError(
                    f"{self._data.path}/feats.scp has none of the {len(wanted)} utterances of part "
                    f"'{name}'"
                )
            found = filter_lines(targets, wanted)
            steps.append(lines_at(self._egs / f"feats.{name}.scp", chosen))
            steps.append(lines_at(self._egs / f"targets.{name}.scp", found))
            if self.opts.online_cmvn:
                speakers = _spk2utt(filter_lines(utt2spk, wanted))
                steps.append(lines_at(self._egs / f"spk2utt.{name}", speakers))
        return steps

    # -- the programs that cut features into examples

    def _features(self, name: str) -> str:
        """The rspecifier of the normalized features of a set of utterances, such as "valid"."""
        egs, data = self._egs, self._data.path
        options = shlex.split(self.experiment.options.feat.cmvn_opts)
        if self.opts.online_cmvn:
            speakers = f"--spk2utt=ark:{egs}/spk2utt.{name}"
            program = ("apply-cmvn-online", *options, speakers, f"{egs}/global_cmvn.stats")
        else:
            speakers = f"--utt2spk=ark:{data}/utt2spk"
            program = ("apply-cmvn", *options, speakers, f"scp:{data}/cmvn.scp")
        return "ark,s,cs:" + pipe_text((*program, f"scp:{egs}/feats.{name}.scp", "ark:-"))

    def _ivector_words(self) -> list[str]:
        if not (where := self.experiment.options.feat.online_ivector_dir):
            return []
        period = read_lines(Path(where) / "ivector_period")[0].strip()
        return [
            f"--online-ivectors=scp:{where}/ivector_online.scp",
            f"--online-ivector-period={period}",
        ]

    def _get_egs(self, name: str, out: str) -> Pipeline:
        """The pipeline that makes examples of a set, such as "valid" or "3"; `out`: wspecifier."""
        script = self._egs / f"targets.{name}.scp"
        before = pipe_text(*self.targets.reading(script))
        words = (
            *self.targets.program,
            f"--frame-subsampling-factor={self.opts.frame_subsampling_factor}",
            f"--length-tolerance={self.opts.length_tolerance}",
            *self._ivector_words(),
            *self.experiment.contexts().words(),
            f"--compress={str(self.opts.compress).lower()}",
            f"--num-frames={self.experiment.frames_per_eg}",
            self._features(name),
            f"ark,s,cs:{before}" if self.targets.reading(script) else f"scp,s,cs:{script}",
            out,
        )
        return (words,)

    def _subset_sizes(self) -> tuple[int, ...]:
        """The number of examples of each file in SUBSETS: valid_combine, valid_diagnostic, ..."""
        diagnostic = self.opts.num_frames_diagnostic
        valid, train = self.opts.num_valid_frames_combine, self.opts.num_train_frames_combine
        return tuple(n // self._labels_per_eg for n in (valid, diagnostic, train, diagnostic))

    def _subsets(self) -> list[Step]:
        """Steps that make the examples for validation, diagnostics, and combination of models."""
        egs, names = self._egs, self._names
        whole = {
            kind: egs / names.subset(f"{source}_all") for kind, (source, _) in _SOURCES.items()
        }
        cut = [
            self._job(
                f"create_{kind}_subset", *self._get_egs(source, f"ark:{whole[kind]}"), home=home
            )
            for kind, (source, home) in _SOURCES.items()
        ]
        chosen = []
        for name, count in zip(SUBSETS, self._subset_sizes(), strict=True):
            kind, _, what = name.partition("_")
            out = f"ark:{egs}/{names.subset(name)}"
            if self.opts.generate_egs_scp and what == "diagnostic":
                out = f"ark,scp:{egs}/{names.subset(name)},{egs}/{name}.scp"
            words = (names.program("subset-egs"), f"--n={count}", f"ark:{whole[kind]}", out)
            log = f"create_{kind}_subset_{what}"
            chosen.append(self._job(log, words, home=_SOURCES[kind][1]))
        return [
            Jobs(tuple(cut), tuple(whole.values())),
            Jobs(tuple(chosen), tuple(egs / names.subset(name) for name in SUBSETS)),
            self._combined(),
        ]

    def _combined(self) -> Step:
        """The step that joins the two subsets of examples for combining models."""
        egs, names = self._egs, self._names
        combine = egs / names.subset("combine")
        parts = tuple(egs / names.subset(name) for name in ("valid_combine", "train_combine"))
        if not self.opts.generate_egs_scp:
            return Concatenate(combine, parts, "no examples to combine models with")
        source, out = "ark:" + pipe_text(("cat", *map(str, parts))), egs / "combine.scp"
        words = (names.program("copy-egs"), source, f"ark,scp:{combine},{out}")
        return self._step("copy_combine", words, out=out)

    def _combination_check(self) -> Jobs:
        """The step that merges the examples for combining models, to find errors early."""
        names = self._names
        source, sizes = f"ark:{self._egs / names.subset('combine')}", names.combination_sizes
        words = (names.program("merge-egs"), f"--minibatch-size={sizes}", source, "ark:/dev/null")
        return self._step("check_combine", words)

    # -- training examples

    def _unshuffled(self, part: int, group: int) -> Path:
        """The intermediate archive of one part of the data for one group of final archives."""
        return self._egs / f"{self._names.files}_orig.{part}.{group}.ark"

    def _everything(self) -> Step:
        """The step that makes all training examples and distributes them at random to groups."""
        num_groups, _ = self._archives
        jobs, outputs = [], []
        for n in range(1, self._num_parts + 1):
            archives = [self._unshuffled(n, m) for m in range(1, num_groups + 1)]
            srand = f"--srand={n + self.experiment.options.trainer.srand}"
            program = self._names.program("copy-egs")
            copy = (program, "--random=true", srand, "ark:-", *(f"ark:{out}" for out in archives))
            cut = self._get_egs(str(n), "ark:-")
            jobs.append(self._job(f"get_egs.{n}", *cut, copy, home=f"egs.{n}"))
            outputs += archives
        return Jobs(tuple(jobs), tuple(outputs))

    def _shuffle(self, group: int, sources: str) -> Pipeline:
        """The pipeline, but for its output argument, that shuffles the examples of `sources`.

        `sources` is an rspecifier, `group` the number of the group of archives to be made.
        """
        program = self._names.program("shuffle-egs")
        return ((program, f"--srand={group + self.experiment.options.trainer.srand}", sources),)

    def _shuffled(self) -> list[Step]:
        """Steps that write the final archives (egs.1.ark, egs.2.ark, and so on) in random order."""
        names, (num_groups, multiple) = self._names, self._archives
        jobs = []
        for m in range(1, num_groups + 1):
            sources = [str(self._unshuffled(n, m)) for n in range(1, self._num_parts + 1)]
            numbers = range((m - 1) * multiple + 1, m * multiple + 1)
            outs = [self._archive_out(number) for number in numbers]
            *before, words = self._shuffle(m, "ark:" + pipe_text(("cat", *sources)))
            programs: Pipeline = (*before, (*words, outs[0]))
            if multiple > 1:
                programs = (*before, (*words, "ark:-"), (names.program("copy-egs"), "ark:-", *outs))
            jobs.append(self._job(f"shuffle.{m}", *programs, home=f"egs.{m}"))
        numbers = range(1, num_groups * multiple + 1)
        steps: list[Step] = [
            Jobs(tuple(jobs), tuple(self._egs / names.archive(n) for n in numbers))
        ]
        if self.opts.generate_egs_scp:
            scripts = tuple(self._egs / names.archive(n, "scp") for n in numbers)
            steps.append(Concatenate(self._egs / f"{names.files}.scp", scripts))
        return steps

    def _archive_out(self, number: int) -> str:
        archive = f"{self._egs}/{self._names.archive(number)}"
        if self.opts.generate_egs_scp:
            script = self._names.archive(number, "scp")
            return f"ark,scp:{archive},{self._egs}/{script}"
        return f"ark:{archive}"

    def _tidied(self) -> Step:
        """The step that removes the intermediate files of making examples."""
        names = self._names
        subsets = ("valid_all", "train_subset_all", "valid_combine", "train_combine")
        files = [
            *map(names.subset, subsets),
            *("feats.*.scp", "targets.*.scp", "spk2utt.*"),
            *self.targets.copies,
        ]
        if self.opts.generate_egs_scp:
            files.append(names.archive("[0-9]*", "scp"))
        # The driver looks for these files to tell whether the stage is done, so they go last.
        files.append(f"{names.files}_orig.*.ark")
        return Remove(tuple(f"{self._egs}/{name}" for name in files))


def _spk2utt(lines: list[str]) -> list[str]:
    of_speaker: dict[str, list[str]] = {}
    for line in lines:
        utterance, speaker = line.split()
        of_speaker.setdefault(speaker, []).append(utterance)
    return [f"{speaker} {' '.join(found)}" for speaker, found in of_speaker.items()]
