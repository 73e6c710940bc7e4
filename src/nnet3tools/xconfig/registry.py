"""Layer types and their classes. Each file in layers/ registers its classes by a decorator."""

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from typing import TypeVar

from nnet3tools.nnet.config import nearest_hint
from nnet3tools.xconfig.layer import ExistingNode, Layer, Scope
from nnet3tools.xconfig.options import read_lines

_classes: dict[str, type[Layer]] = {}

L = TypeVar("L", bound=type[Layer])


def register(types: str) -> Callable[[L], L]:
    """Class decorator: register a Layer class for the blank-separated layer types `types`."""

    def decorate(cls: L) -> L:
        cls.TYPES = tuple(types.split())
        _classes.update(dict.fromkeys(cls.TYPES, cls))
        return cls

    return decorate


def layer_classes() -> dict[str, type[Layer]]:
    """The Layer class of each layer type; all modules of layers are imported."""
    folder = importlib.import_module(f"{__package__}.layers")
    for module in pkgutil.iter_modules(folder.__path__):
        importlib.import_module(f"{folder.__name__}.{module.name}")
    return _classes


def make_layers(text: str, file: str, existing: Iterable[ExistingNode] = ()) -> list[Layer]:
    """The layers of an xconfig text; ConfigErrors name `file`; nodes `existing` can be inputs."""
    scope, classes = Scope(existing), layer_classes()
    for line in read_lines(text, file):
        if (cls := classes.get(line.layer_type)) is None:
            hint = nearest_hint(line.layer_type, classes)
            raise line.error(f"unknown layer type '{line.layer_type}'{hint}")
        scope.layers.append(cls(line, scope))
    return scope.layers
