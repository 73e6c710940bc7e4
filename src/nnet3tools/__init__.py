"""Kaldi's nnet3 neural networks as a Python toolkit.

The names of `__all__` are the Python interface; docs/python.md is its guide. Each is imported when
it is first used, so `import nnet3tools` itself loads nothing, not even NumPy.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # as typing.TYPE_CHECKING, without the 5 ms that importing typing takes
if TYPE_CHECKING:
    from nnet3tools.api.nnet import Nnet
    from nnet3tools.api.programs import NnetComputer, Program, compile
    from nnet3tools.api.recognizer import Recognizer
    from nnet3tools.api.tables import RandomTableReader, TableReader, TableWriter
    from nnet3tools.api.training import Trainer, make_examples, merge_examples
    from nnet3tools.errors import (
        ConfigError,
        DataError,
        DivergedError,
        EmptyError,
        Nnet3Error,
        NotFiniteError,
        OptionError,
        ProgramError,
        RequestError,
        UserError,
    )
    from nnet3tools.graph.request import ComputationRequest, IoSpecification
    from nnet3tools.io.posterior import Posterior
    from nnet3tools.io.wave import Wave
    from nnet3tools.recognizer.results import Alternative, Partial, Result, Word
    from nnet3tools.recognizer.stream import Stream
    from nnet3tools.training.example import NnetExample, NnetIo
    from nnet3tools.training.trainer import NnetTrainerOptions as TrainerOptions

__all__ = [
    "Alternative",
    "ComputationRequest",
    "ConfigError",
    "DataError",
    "DivergedError",
    "EmptyError",
    "IoSpecification",
    "Nnet",
    "Nnet3Error",
    "NnetComputer",
    "NnetExample",
    "NnetIo",
    "NotFiniteError",
    "OptionError",
    "Partial",
    "Posterior",
    "Program",
    "ProgramError",
    "RandomTableReader",
    "Recognizer",
    "RequestError",
    "Result",
    "Stream",
    "TableReader",
    "TableWriter",
    "Trainer",
    "TrainerOptions",
    "UserError",
    "Wave",
    "Word",
    "compile",
    "make_examples",
    "merge_examples",
]

_MODULES = {
    "api.nnet": "Nnet",
    "api.programs": "NnetComputer Program compile",
    "api.recognizer": "Recognizer",
    "api.tables": "RandomTableReader TableReader TableWriter",
    "api.training": "Trainer make_examples merge_examples",
    "errors": "ConfigError DataError DivergedError EmptyError Nnet3Error NotFiniteError "
    "OptionError ProgramError RequestError UserError",
    "graph.request": "ComputationRequest IoSpecification",
    "io.posterior": "Posterior",
    "io.wave": "Wave",
    "recognizer.results": "Alternative Partial Result Word",
    "recognizer.stream": "Stream",
    "training.example": "NnetExample NnetIo",
    "training.trainer": "NnetTrainerOptions=TrainerOptions",
}
"""Module -> the public names in it; `a=b` is the name a of the module under the name b."""


if not TYPE_CHECKING:  # else type checkers would take every name for one that exists

    def __getattr__(name: str) -> object:
        """Import a name of the Python interface at its first use."""
        from importlib import import_module

        for module, names in _MODULES.items():
            for word in names.split():
                original, _, public = word.partition("=")
                if name == (public or original):
                    import_module("nnet3tools.api")  # its messages go to the logging module
                    value: object = getattr(import_module(f"nnet3tools.{module}"), original)
                    globals()[name] = value
                    return value
        raise AttributeError(f"module 'nnet3tools' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
