"""The source of an experiment's network, and its properties before it is made."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.checked import exists, is_file
from nnet3tools.number_text import parse_int
from nnet3tools.recipe.data_dir import read_lines


@dataclass(frozen=True)
class Contexts:
    """Frames of input context on the left and right of a chunk.

    `left_initial` and `right_final` are for chunks at the ends of utterances; -1: no difference.
    """

    left: int
    right: int
    left_initial: int = -1
    right_final: int = -1

    def words(self) -> list[str]:
        """The context as command-line options of nnet3-get-egs."""
        found = [f"--left-context={self.left}", f"--right-context={self.right}"]
        if self.left_initial >= 0:
            found.append(f"--left-context-initial={self.left_initial}")
        if self.right_final >= 0:
            found.append(f"--right-context-final={self.right_final}")
        return found


@dataclass(frozen=True)
class NetworkSource:
    """The origin of a network: the file `input_model` or, if "", config files in `dir`/configs."""

    dir: Path
    input_model: str

    def check(self) -> None:
        """DataError if the configs or the input model do not exist."""
        model, configs = self.input_model, self.dir / "configs"
        if model and not exists(model):
            raise DataError(f"--trainer.input-model={model}: there is no such file")
        if not model and not is_file(configs / "final.config"):
            raise DataError(
                f"there is no '{configs}/final.config' (nnet3-xconfig-to-configs makes it), and no "
                "--trainer.input-model"
            )

    def check_targets(self, num_targets: int, source: str) -> None:
        """DataError if the network's output dimension is not the `num_targets` of file `source`."""
        reference = self.dir / "configs" / "ref.raw"
        if not is_file(reference) or self.input_model:
            return
        from nnet3tools.nnet.model_file import read_nnet

        nnet = read_nnet(str(reference))
        node = nnet.node_index("output")
        if node >= 0 and (dim := nnet.output_dim("output")) != num_targets:
            raise DataError(
                f"{self.dir}/configs: the network's output has dimension {dim}, but {source} has "
                f"{num_targets} targets"
            )

    def variables(self) -> dict[str, str]:
        """The variables in configs/vars by name; empty with --trainer.input-model."""
        if self.input_model:
            return {}
        found = {}
        path = self.dir / "configs" / "vars"
        for number, line in enumerate(read_lines(path), start=1):
            name, equals, value = line.partition("=")
            if not equals:
                raise DataError(f"{path}: line {number}: expected name=value, found '{line[:60]}'")
            found[name.strip()] = value.strip()
        return found

    @cached_property
    def contexts(self) -> tuple[int, int]:
        """The left and the right context of the network in frames."""
        if self.input_model:
            from nnet3tools.graph.context import compute_simple_nnet_context
            from nnet3tools.nnet.model_file import read_nnet

            context = compute_simple_nnet_context(read_nnet(self.input_model))
            return context.left, context.right
        variables = self.variables()
        path = self.dir / "configs" / "vars"
        found = []
        for side in ("left", "right"):
            value = variables.get(f"model_{side}_context", variables.get(f"{side}_context", ""))
            if (number := parse_int(value)) is None:
                raise DataError(
                    f"{path}: expected model_{side}_context=<number>, found '{value[:40]}'"
                )
            found.append(number)
        return found[0], found[1]

    @property
    def has_init_config(self) -> bool:
        """Whether a part of the network is built first to estimate an LDA-like transform."""
        return not self.input_model and is_file(self.dir / "configs" / "init.config")
