"""Reading of a model directory: finds its files and parses their contents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from nnet3tools.errors import DataError, naming
from nnet3tools.fast_dataclasses import replace
from nnet3tools.features.cmvn_options import CmvnOptions, OnlineCmvnOptions
from nnet3tools.features.sound_options import FbankOptions, MfccOptions
from nnet3tools.io import log
from nnet3tools.io.checked import is_file
from nnet3tools.io.files import number_in, read_text_lines
from nnet3tools.recognizer import parts
from nnet3tools.recognizer.normalization import Normalization
from nnet3tools.recognizer.options import RecognizerOptions
from nnet3tools.recognizer.parts import Part

ReadOptions: TypeAlias = "Callable[[Sequence[str], str, type], Any]"
"""Makes an instance of a dataclass of options from words such as --config=FILE or --beam=13.

The second argument is the name of the words in errors.
"""


class ModelDirectory:
    """Paths and parsed values of a model directory's files; None for a file that is missing."""

    def __init__(
        self, folder: str, graph: str | None, options: RecognizerOptions, read_options: ReadOptions
    ) -> None:
        """Find and parse the files; messages about files that are missing go to the list `missing`.

        `graph` is an FST or a folder with HCLG.fst, in place of the directory's. `options` are
        those of the directory's option files and of the user. `read_options(words, name, kind)`
        parses words such as "--beam=10" to options of class `kind`; errors name `name`. DataError
        for a missing folder, a malformed file, and for features that are not supported.
        """
        self.path = Path(folder)
        if not self.path.is_dir():
            raise DataError(f"expected a model directory, found no folder {folder}")
        self.options, self._files = options, options.files
        self._refuse_unsupported()
        self.missing: list[str] = []
        """For each missing file that decoding needs: its name, and how to make it."""
        self.option_files = parts.option_files(folder)
        self._read_options = read_options
        words = [f"--config={path}" for path in self.option_files]
        self._configured = read_options(words, folder, type(options)).files
        self._is_online = is_file(self.path / parts.ONLINE_CONF)
        self._is_vosk = (self.path / "am").is_dir() and not is_file(self.path / "final.mdl")
        self._has_own_graph = graph is None
        self._graph = self.path / parts.GRAPH.name
        if graph is not None:
            self._graph = Path(graph, "HCLG.fst") if Path(graph).is_dir() else Path(graph)

        name = options.model
        self.model = self._need(replace(parts.MODEL, places=(name, f"am/{name}")))
        if self._has_own_graph and not self._is_online and options.acoustic_scale is None:
            self._need(parts.MODEL_CONF)
        self.frame_subsampling_factor = options.frame_subsampling_factor or self._subsampling()
        """0 if it is not known."""
        self.features, self.feature_options = self._read_features()
        self.normalization = self._read_normalization()
        self.graph = self._find_graph()
        self.words = self._need(parts.WORDS, "word_symbol_table")
        find = self._need if self._has_own_graph and not self._is_vosk else self._find
        self.lexicon = find(parts.LEXICON)
        """align_lexicon.int; without it the times of words are approximate."""
        self.silence = find(parts.SILENCE)

    def check(self) -> None:
        """Raise DataError about the first missing file if files that decoding needs are missing."""
        if self.missing:
            more = len(self.missing) - 1
            hint = f" ({more} more: nnet3-recognizer-info {self.path})" if more else ""
            raise DataError(self.missing[0] + hint)

    def _refuse_unsupported(self) -> None:
        """Raise DataError if the model needs unsupported features, such as PLP."""
        files = self._files
        kinds = {
            "PLP features (--feature-type=plp)": files.feature_type == "plp" or files.plp_config,
            "pitch features (--add-pitch=true)": files.add_pitch,
            "i-vectors (--ivector-extraction-config)": files.ivector_extraction_config,
        }
        for kind, is_needed in kinds.items():
            if is_needed:
                raise DataError(f"{self.path} needs {kind}: there is no program for them here yet")

    # -- finding files

    def _places(self, part: Part) -> list[Path]:
        """Paths where the file `part` may be; those of graph/ are beside the graph in use."""
        if part.name.startswith("graph/"):
            return [self._graph.parent / part.name.removeprefix("graph/")]
        return [self.path / place for place in part.places]

    def _find(self, part: Part) -> Path | None:
        return next((path for path in self._places(part) if is_file(path)), None)

    def _need(self, part: Part, attribute: str = "") -> Path | None:
        """The path that the option `attribute` gives if it is set, else that of the file `part`.

        If the file is missing, the result is None, and a message is added to `missing`.
        """
        if attribute and getattr(self._files, attribute):
            return self._named(attribute)
        if (path := self._find(part)) is None:
            self.missing.append(self._absent(part))
        return path

    def _absent(self, part: Part) -> str:
        return part.absent(self._places(part)[-1 if self._is_vosk else 0], self.path)

    def _named(self, attribute: str) -> Path | None:
        """The path that an option gives; `attribute` is the option's name with _ in place of -.

        If there is no such file, the result is None, and a message is added to `missing`. Kaldi's
        online.conf has absolute paths. If the directory has been moved, the file of the same name
        in the directory is used.
        """
        value = getattr(self._files, attribute)
        if is_file(path := Path(value)):
            return path
        option = f"--{attribute.replace('_', '-')}={value}"
        if value != getattr(self._configured, attribute):
            self.missing.append(f"{option}: there is no such file")
            return None
        if (inside := self._inside(value)) is None:
            problem = f"there is no such file, and none of this name in {self.path}"
            self.missing.append(f"{self.option_files[0]}: {option}: {problem}")
        return inside

    def _inside(self, name: str) -> Path | None:
        """The file in the directory or its conf/ with the base name of the path `name`, or None."""
        places = (self.path / Path(name).name, self.path / "conf" / Path(name).name)
        return next((path for path in places if is_file(path)), None)

    def _recipes(self) -> list[Path]:
        """The folders of the recipes whose exp/ contains the model directory."""
        return [path.parent for path in self.path.absolute().parents if path.name == "exp"]

    # -- what the files say

    def _subsampling(self) -> int:
        path = self._need(parts.SUBSAMPLING)
        return number_in(str(path)) if path else 0

    def _read_features(self) -> tuple[Path | None, MfccOptions | FbankOptions | None]:
        """(the file with the features' options, the options); (None, None) if it is missing."""
        wanted, paths = self._files.feature_type, self._feature_files()
        if wanted:
            paths = {kind: path for kind, path in paths.items() if kind == wanted}
        if len(paths) > 1:
            self.missing.append(
                f"{self.path} has options of MFCC and of filter banks: give --feature-type=mfcc or "
                "--feature-type=fbank"
            )
            return None, None
        if not paths:
            text = self._absent(parts.FBANK if wanted == "fbank" else parts.MFCC)
            text = text.replace("mfcc.conf:", "mfcc.conf (or fbank.conf):")
            near = self._recipe_configs()
            self.missing.append(f"{text} (perhaps {near[0]})" if near else text)
            return None, None
        ((kind, path),) = paths.items()
        if path is None:
            return None, None
        options_type = MfccOptions if kind == "mfcc" else FbankOptions
        return path, self._read_options([f"--config={path}"], str(path), options_type)

    def _feature_files(self) -> dict[str, Path | None]:
        """Option files by kind, "mfcc" or "fbank"; None if the file an option names is missing."""
        named = {"mfcc": self._files.mfcc_config, "fbank": self._files.fbank_config}
        if any(named.values()):
            return {kind: self._named(f"{kind}_config") for kind, name in named.items() if name}
        found = {"mfcc": self._find(parts.MFCC), "fbank": self._find(parts.FBANK)}
        if any(found.values()):
            return {kind: path for kind, path in found.items() if path}
        near = self._recipe_configs()
        near = [path for path in near if path.name == "mfcc_hires.conf"] or near
        if self._has_own_graph or self.option_files or len(near) != 1:
            return {}
        log.log(f"{self.path} has no options of features: {near[0]} of its recipe is used")
        return {"fbank" if near[0].name.startswith("fbank") else "mfcc": near[0]}

    def _recipe_configs(self) -> list[Path]:
        """Option files such as conf/mfcc_hires.conf in the recipe that contains the directory."""
        found = [path for root in self._recipes() for path in root.glob("conf/*.conf")]
        wanted = [path for path in found if path.name.startswith(("mfcc", "fbank"))]
        return sorted(wanted, key=lambda path: ("hires" not in path.name, path.name))

    def _read_normalization(self) -> Normalization | None:
        """The normalization selected by --cmvn or, if it is "auto", by the directory's files.

        None if a file that it needs is missing.
        """
        opts, marker = self._find(parts.CMVN_OPTS), self._find(parts.ONLINE_CMVN)
        has_stats = bool(self._files.global_cmvn_stats) or bool(self._find(parts.GLOBAL_STATS))
        kind = self.options.cmvn
        if kind in ("none", "utterance"):
            return Normalization(kind)
        if kind == "online" or self._files.cmvn_config:
            return self._online(opts if marker else None)
        if marker:
            return self._online(self._need(parts.CMVN_OPTS))
        if opts is None and self._is_vosk and has_stats and not self._is_online:
            return self._online(None)
        if opts is None and (self._is_vosk or self._is_online):
            return Normalization("none")
        if opts is None or has_stats:
            self.missing.append(self._absent(parts.ONLINE_CMVN if opts else parts.CMVN_OPTS))
            return None
        options = self._cmvn_options(opts, CmvnOptions)
        return Normalization("utterance" if options.norm_means else "none", options)

    def _online(self, opts: Path | None) -> Normalization | None:
        """Online normalization by --cmvn-config or else `opts`; None if statistics are missing."""
        options = OnlineCmvnOptions()
        if self._files.cmvn_config and (path := self._named("cmvn_config")):
            options = self._checked([f"--config={path}"], path, OnlineCmvnOptions)
        elif opts is not None:
            options = self._cmvn_options(opts, OnlineCmvnOptions)
        stats = self._need(parts.GLOBAL_STATS, "global_cmvn_stats")
        return None if stats is None else Normalization("online", options, stats)

    def _cmvn_options(self, path: Path, kind: type) -> Any:
        """Options of the class `kind`, read from a file such as cmvn_opts.

        A --config=FILE may be in the directory, or relative to the folder of Kaldi's recipe.
        """
        words = " ".join(read_text_lines(str(path))).split()
        for number, word in enumerate(words):
            name, _, value = word.partition("=")
            if name == "--config" and not is_file(Path(value)):
                roots = [root / value for root in self._recipes() if is_file(root / value)]
                words[number] = f"--config={self._inside(value) or (roots or [Path(value)])[0]}"
        return self._checked(words, path, kind)

    def _checked(self, words: Sequence[str], path: Path, kind: type) -> Any:
        """Parse `words` to options of class `kind`; DataError, naming `path`, for wrong words."""
        with naming(str(path)):
            options = self._read_options(words, str(path), kind)
            options.check()
        return options

    def _find_graph(self) -> Path | None:
        """The path of the decoding graph; None if it is missing, with a message in `missing`.

        A graph whose phones differ from the model's (check_phones_compatible.sh) also gives a
        message.
        """
        own, graphs = self.path / "phones.txt", self._graph.with_name("phones.txt")
        if not is_file(own):
            own = self.path / "lang/phones.txt"
        if is_file(own) and is_file(graphs):
            lines = ([x for x in read_text_lines(str(p)) if x[:1] != "#"] for p in (own, graphs))
            if next(lines) != next(lines):
                self.missing.append(
                    f"{own} and {graphs} differ: the graph was made for another model"
                )
        if is_file(self._graph):
            return self._graph
        lookahead = is_file(self._graph.with_name("HCLr.fst"))
        problem = " (HCLr.fst and Gr.fst, graphs for look-ahead, are not supported)" * lookahead
        text = f"expected {self._graph}: a graph"
        self.missing.append((self._absent(parts.GRAPH) if self._has_own_graph else text) + problem)
        return None
