"""Reading of a model directory: which of its files there are, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from nnet3tools.errors import DataError, naming
from nnet3tools.features.cmvn_options import CmvnOptions
from nnet3tools.features.online_cmvn_options import OnlineCmvnOptions
from nnet3tools.features.sound_options import FbankOptions, MfccOptions
from nnet3tools.io import log
from nnet3tools.io.files import read_text_lines
from nnet3tools.recognizer import parts
from nnet3tools.recognizer.options import RecognizerOptions
from nnet3tools.recognizer.parts import Part

ReadOptions: TypeAlias = "Callable[[Sequence[str], str, type], Any]"
"""Makes an instance of a dataclass of options from words such as --config=FILE or --beam=13.

The second argument is the name of the words in errors.
"""


@dataclass(frozen=True)
class CmvnSettings:
    """The normalization that a directory asks for: "none", "utterance" or "online"."""

    kind: str
    stats: Path | None = None
    """For "online": the file of the statistics."""
    options: CmvnOptions | OnlineCmvnOptions = field(default_factory=CmvnOptions)


@dataclass(frozen=True)
class ModelDirectory:
    """The files of a model directory and their values; None for a file that is missing."""

    path: Path
    model: Path | None
    graph: Path | None
    words: Path | None
    lexicon: Path | None
    """align_lexicon.int; without it the times of words are approximate."""
    silence: Path | None
    features: Path | None
    feature_options: MfccOptions | FbankOptions | None
    cmvn: CmvnSettings | None
    frame_subsampling_factor: int | None
    acoustic_scale: float | None
    """None: 1.0 for a chain model, unknown for others."""
    option_files: tuple[Path, ...]
    """Files with options of nnet3-decode, such as model.conf; later ones override earlier ones."""
    missing: tuple[str, ...]
    """For each missing file that decoding needs: its name, and how to make it."""

    def check(self) -> None:
        """DataError, which names the first one, if files that decoding needs are missing."""
        if self.missing:
            more = len(self.missing) - 1
            hint = f" ({more} more: nnet3-recognizer-info {self.path})" if more else ""
            raise DataError(self.missing[0] + hint)


def option_files(folder: str) -> tuple[Path, ...]:
    """The files of a model directory with options of nnet3-decode; later ones override earlier."""
    online, *model = (Path(folder) / x for x in (parts.ONLINE_CONF, *parts.MODEL_CONF.places))
    found = [path for path in model if path.is_file()][:1]
    return (online, *found) if online.is_file() else tuple(found)


class DirectoryReader:
    """Finds the files of one directory and collects what is missing."""

    def __init__(
        self, folder: Path, graph: str | None, options: RecognizerOptions, read_options: ReadOptions
    ) -> None:
        self._folder, self._options, self._files = folder, options, options.files
        self._read_options = read_options
        self._conf = option_files(str(folder))
        words = [f"--config={path}" for path in self._conf]
        self._configured = read_options(words, str(folder), type(options)).files
        self._is_online = (folder / parts.ONLINE_CONF).is_file()
        self._is_vosk = (folder / "am").is_dir() and not (folder / "final.mdl").is_file()
        self._given_graph = graph
        self._missing: list[str] = []

    def result(self) -> ModelDirectory:
        """The description of the directory."""
        refuse_unsupported(self._folder, self._options)
        model = self._need(parts.MODEL, self._options.model)
        scale = self._scale()
        factor = self._factor()
        features, feature_options = self._features()
        cmvn = self._cmvn()
        graph, words = self._graph_files()
        graph_dir = self._folder / "graph" if graph is None else graph.parent
        lexicon, silence = self._phone_files(graph_dir)
        return ModelDirectory(
            self._folder, model, graph, words, lexicon, silence, features, feature_options, cmvn,
            factor, scale, self._conf, tuple(self._missing),
        )  # fmt: skip

    # -- finding files

    def _find(self, part: Part, name: str = "") -> Path | None:
        """The file of a part in one of its places; `name` replaces the file's usual name."""
        for place in part.places:
            path = self._folder / place
            path = path.with_name(name) if name else path
            if path.is_file():
                return path
        return None

    def _need(self, part: Part, name: str = "") -> Path | None:
        """The file of a part; a missing one is noted."""
        path = self._find(part, name)
        if path is None:
            self._missing.append(self._absent(part).replace(part.name, name or part.name, 1))
        return path

    def _absent(self, part: Part) -> str:
        return part.absent(self._folder, self._is_vosk)

    def _named(self, attribute: str) -> Path | None:
        """The file that an option names; None if the option is not given or there is no such file.

        Kaldi's online.conf has absolute paths. If the directory has been moved, the file of the
        same name in the directory is used.
        """
        value = getattr(self._files, attribute)
        if not value:
            return None
        path = Path(value)
        if path.is_file():
            return path
        option = f"--{attribute.replace('_', '-')}={value}"
        if value != getattr(self._configured, attribute):
            self._missing.append(f"{option}: there is no such file")
            return None
        if (inside := self._inside(value)) is None:
            problem = f"there is no such file, and none of this name in {self._folder}"
            self._missing.append(f"{self._conf[0]}: {option}: {problem}")
        return inside

    def _inside(self, name: str) -> Path | None:
        """The file in the directory or its conf/ that is called as the file `name`."""
        places = (self._folder, self._folder / "conf")
        found = [place / Path(name).name for place in places]
        return next((path for path in found if path.is_file()), None)

    # -- what the files say

    def _factor(self) -> int | None:
        if self._options.frame_subsampling_factor:
            return self._options.frame_subsampling_factor
        path = self._need(parts.SUBSAMPLING)
        return None if path is None else number_in(path)

    def _features(self) -> tuple[Path | None, MfccOptions | FbankOptions | None]:
        """The file of the features' options, and its contents."""
        wanted, paths = self._files.feature_type, self._feature_files()
        if wanted:
            paths = {kind: path for kind, path in paths.items() if kind == wanted}
        if len(paths) > 1:
            self._missing.append(
                f"{self._folder} has options of MFCC and of filter banks: give --feature-type=mfcc "
                "or --feature-type=fbank"
            )
            return None, None
        if not paths:
            text = self._absent(parts.FBANK if wanted == "fbank" else parts.MFCC)
            text = text.replace("mfcc.conf:", "mfcc.conf (or fbank.conf):")
            near = self._recipe_configs()
            self._missing.append(f"{text} (perhaps {near[0]})" if near else text)
            return None, None
        kind, path = paths.popitem()
        if path is None:
            return None, None
        options_type = MfccOptions if kind == "mfcc" else FbankOptions
        return path, self._read_options([f"--config={path}"], str(path), options_type)

    def _feature_files(self) -> dict[str, Path | None]:
        """The files of the features' options by kind; None for one that an option names in vain."""
        named = {"mfcc": self._files.mfcc_config, "fbank": self._files.fbank_config}
        if any(named.values()):
            return {kind: self._named(f"{kind}_config") for kind, name in named.items() if name}
        found = {"mfcc": self._find(parts.MFCC), "fbank": self._find(parts.FBANK)}
        if any(found.values()):
            return {kind: path for kind, path in found.items() if path}
        near = self._recipe_configs()
        near = [path for path in near if path.name == "mfcc_hires.conf"] or near
        if self._given_graph is None or self._conf or len(near) != 1:
            return {}
        log.log(f"{self._folder} has no options of features: {near[0]} of its recipe is used")
        return {"fbank" if near[0].name.startswith("fbank") else "mfcc": near[0]}

    def _recipes(self) -> list[Path]:
        """The folders of Kaldi's recipes whose exp/ has the directory."""
        return [path.parent for path in self._folder.absolute().parents if path.name == "exp"]

    def _recipe_configs(self) -> list[Path]:
        """Files such as conf/mfcc_hires.conf of Kaldi's recipe whose exp/ has the directory."""
        found = [path for root in self._recipes() for path in root.glob("conf/*.conf")]
        wanted = [path for path in found if path.name.startswith(("mfcc", "fbank"))]
        return sorted(wanted, key=lambda path: ("hires" not in path.name, path.name))

    def _cmvn(self) -> CmvnSettings | None:
        """The normalization, by --cmvn or, if that is auto, by the directory's files."""
        opts, marker = self._find(parts.CMVN_OPTS), self._find(parts.ONLINE_CMVN)
        has_stats = bool(self._files.global_cmvn_stats) or bool(self._find(parts.GLOBAL_STATS))
        kind = self._options.cmvn
        if kind in ("none", "utterance"):
            return CmvnSettings(kind)
        if kind == "online" or self._files.cmvn_config:
            return self._online(opts if marker else None)
        if marker:
            return self._online(self._need(parts.CMVN_OPTS))
        if opts is None and self._is_online:
            return CmvnSettings("none")
        if opts is None and self._is_vosk:
            return self._online(None) if has_stats else CmvnSettings("none")
        if opts is None or has_stats:
            self._missing.append(self._absent(parts.ONLINE_CMVN if opts else parts.CMVN_OPTS))
            return None
        options = self._cmvn_options(opts, CmvnOptions)
        return CmvnSettings("utterance" if options.norm_means else "none", None, options)

    def _online(self, opts: Path | None) -> CmvnSettings | None:
        """Online normalization, with the options in --cmvn-config or in `opts`, as cmvn_opts."""
        options = OnlineCmvnOptions()
        if self._files.cmvn_config and (path := self._named("cmvn_config")):
            options = self._checked([f"--config={path}"], path, OnlineCmvnOptions)
        elif opts is not None:
            options = self._cmvn_options(opts, OnlineCmvnOptions)
        if self._files.global_cmvn_stats:
            stats = self._named("global_cmvn_stats")
        else:
            stats = self._need(parts.GLOBAL_STATS)
        return None if stats is None else CmvnSettings("online", stats, options)

    def _cmvn_options(self, path: Path, kind: type) -> Any:
        """The options in a file such as cmvn_opts.

        A --config=FILE may be in the directory, or relative to the folder of Kaldi's recipe.
        """
        words = " ".join(read_text_lines(str(path))).split()
        for number, word in enumerate(words):
            name, _, value = word.partition("=")
            if name == "--config" and not Path(value).is_file():
                roots = [root / value for root in self._recipes() if (root / value).is_file()]
                words[number] = f"--config={self._inside(value) or (roots or [Path(value)])[0]}"
        return self._checked(words, path, kind)

    def _checked(self, words: Sequence[str], path: Path, kind: type) -> Any:
        """The options of normalization in `words`; DataError, naming `path`, for wrong ones."""
        with naming(str(path)):
            options = self._read_options(words, str(path), kind)
            options.check()
        return options

    def _scale(self) -> float | None:
        """The acoustic scale; model.conf is needed unless the scale or a graph is given."""
        scale = self._options.acoustic_scale
        needs_conf = self._given_graph is None and not self._is_online and scale is None
        if needs_conf:
            self._need(parts.MODEL_CONF)
        return scale

    def _graph_files(self) -> tuple[Path | None, Path | None]:
        """The decoding graph and its symbol table of words."""
        given = self._given_graph
        if given is None:
            graph = self._folder / parts.GRAPH.places[0]
        else:
            graph = Path(given) / "HCLG.fst" if Path(given).is_dir() else Path(given)
        if not graph.is_file():
            lookahead = graph.with_name("HCLr.fst").is_file()
            problem = " (HCLr.fst and Gr.fst, graphs for look-ahead, are not supported)"
            text = f"expected {graph}: a graph" if given else self._absent(parts.GRAPH)
            self._missing.append(text + problem * lookahead)
        self._check_phones(graph)
        words: Path | None = graph.with_name("words.txt")
        if self._files.word_symbol_table:
            words = self._named("word_symbol_table")
        elif not (words and words.is_file()):
            text = self._absent(parts.WORDS)
            self._missing.append(
                text.replace(f"{self._folder}/graph/words.txt", str(graph.with_name("words.txt")))
            )
            words = None
        return (graph if graph.is_file() else None), words

    def _check_phones(self, graph: Path) -> None:
        """Note phones of the graph that are not the model's, as check_phones_compatible.sh does."""
        paths = (self._folder / "phones.txt", graph.with_name("phones.txt"))
        if all(path.is_file() for path in paths):
            lines = ([x for x in read_text_lines(str(p)) if x[:1] != "#"] for p in paths)
            if next(lines) != next(lines):
                self._missing.append(
                    f"{paths[0]} and {paths[1]} differ: the graph was made for another model"
                )

    def _phone_files(self, graph_dir: Path) -> tuple[Path | None, Path | None]:
        """align_lexicon.int and silence.csl.

        They are optional beside a graph that the user gives, and in Vosk's layout.
        """
        found: list[Path | None] = []
        for part in (parts.LEXICON, parts.SILENCE):
            path = graph_dir / "phones" / Path(part.name).name
            found.append(path if path.is_file() else None)
            if not path.is_file() and self._given_graph is None and not self._is_vosk:
                self._missing.append(self._absent(part))
        return found[0], found[1]


def refuse_unsupported(folder: Path, options: RecognizerOptions) -> None:
    """DataError, which names the cause, for features that cannot be computed here."""
    files = options.files
    kinds = {
        "PLP features (--feature-type=plp)": files.feature_type == "plp" or bool(files.plp_config),
        "pitch features (--add-pitch=true)": files.add_pitch,
        "i-vectors (--ivector-extraction-config)": bool(files.ivector_extraction_config),
    }
    for kind, is_needed in kinds.items():
        if is_needed:
            raise DataError(f"{folder} needs {kind}: there is no program for them here yet")


def number_in(path: Path) -> int:
    """The number in a file such as frame_subsampling_factor; DataError for anything else."""
    lines = read_text_lines(str(path))
    if len(lines) != 1 or not lines[0].strip().isdecimal() or int(lines[0]) < 1:
        raise DataError(f"{path}: expected a number greater than 0")
    return int(lines[0])
