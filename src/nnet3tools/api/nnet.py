"""Nnet: a network or acoustic model with its files, its parameters and its outputs."""

import hashlib
import os
import threading
from types import SimpleNamespace
from typing import Any, BinaryIO, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnet3tools.api.arrays import Path, float_matrix
from nnet3tools.api.random_numbers import RandomNumbers
from nnet3tools.errors import DataError, OptionError
from nnet3tools.executor.chunks import Ivectors
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.executor.utterance_computer import UtteranceComputer, computer_together
from nnet3tools.graph.context import NnetContext, compute_simple_nnet_context
from nnet3tools.io.files import open_input, open_output
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.am_nnet import AmNnet
from nnet3tools.nnet.edits import edit_network
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.nnet.model_file import apply_config_file
from nnet3tools.nnet.nnet import Nnet as _Nnet
from nnet3tools.recognizer.models import prepare_for_outputs
from nnet3tools.tensor.settings import new_objects

FloatArray = NDArray[np.float32]


class Nnet(_Nnet):
    """A neural network: nodes, components with parameters, and outputs for features.

    It also holds the transition model and the priors of an acoustic model (a .mdl file), if it was
    read from one. Paths may be Kaldi's extended file names: `-`, `file:offset`, `command |`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.transition_model: TransitionModel | None = None
        """From phones to pdfs; None for a network without one (a .raw file)."""
        self.priors: FloatArray = np.empty(0, np.float32)
        """The prior of each pdf; empty if the file has none."""
        self._lock = threading.RLock()
        self._computer: tuple[object, UtteranceComputer] | None = None

    # -- files

    @classmethod
    def read(cls, source: Path | Reader) -> Self:
        """The network in a .raw or .mdl file, text or binary; DataError for other contents."""
        if not isinstance(source, (str, os.PathLike)):
            return super().read(source)
        with open_input(os.fspath(source)) as reader:
            if reader.peek_token() != "<TransitionModel>":
                return super().read(reader)
            model = AmNnet.read(reader)
        nnet = cls()
        nnet.nodes, nnet.node_names = model.nnet.nodes, model.nnet.node_names
        nnet.components, nnet.component_names = model.nnet.components, model.nnet.component_names
        nnet.transition_model, nnet.priors = model.transition_model, model.priors
        return nnet

    @classmethod
    def from_config_file(cls, path: Path, seed: int = 0) -> Self:
        """A new network from a config file, as nnet3-init makes it with --srand=`seed`.

        ConfigError, with file and line, for a wrong config.
        """
        nnet = cls()
        with RandomNumbers(seed):
            apply_config_file(nnet, os.fspath(path))
        return nnet

    def write(self, target: Path | Writer, binary: bool = True) -> None:
        """Write the network, in the kind of file that it was read from (.raw or .mdl).

        The file appears whole or not at all. DataError if it cannot be written.
        """
        if not isinstance(target, (str, os.PathLike)):
            super().write(target)
            return
        with open_output(os.fspath(target), binary) as writer:
            if self.transition_model is None:
                super().write(writer)
                return
            context = self.context
            model = AmNnet(self.transition_model, self, context.left, context.right, self.priors)
            model.write(writer)

    def copy(self) -> Self:
        """An independent copy of the network and its components."""
        other = super().copy()
        other.transition_model, other.priors = self.transition_model, self.priors.copy()
        return other

    # -- looking and changing

    @property
    def context(self) -> NnetContext:
        """The frames before (`left`) and after (`right`) a frame that its output depends on."""
        return compute_simple_nnet_context(self)

    def component(self, component: int | str) -> Any:
        """The Component with this number or name; DataError if there is none.

        Its arrays, such as `linear_params` and `bias_params`, are NumPy arrays that may be changed.
        """
        if isinstance(component, str):
            if component not in self.component_names:
                names = ", ".join(self.component_names)
                raise DataError(f"the network has no component '{component}'; it has {names}")
            component = self.component_names.index(component)
        elif not 0 <= component < len(self.components):
            raise DataError(f"no component {component}: the network has {len(self.components)}")
        return super().component(component)

    def __str__(self) -> str:
        return self.info()

    def parameters(self) -> dict[str, FloatArray]:
        """All trainable arrays by the name "component.array", float32, not copied.

        Writing to an array, as in `nnet.parameters()["a.bias_params"][:] = 0`, changes the network.
        """
        return {
            f"{name}.{key}": array
            for name, component in self.updatable_components()
            for key, array in component.parameters().items()
        }

    def edit(self, directives: str) -> None:
        """Apply the directives of nnet3-copy's --edits, such as "remove-output-nodes name=x"."""
        edit_network(self, directives)

    # -- outputs

    def compute(
        self,
        features: ArrayLike,
        ivectors: ArrayLike | None = None,
        *,
        online_ivector_period: int = 0,
        frame_subsampling_factor: int = 1,
        frames_per_chunk: int = 50,
        extra_left_context: int = 0,
        extra_right_context: int = 0,
        extra_left_context_initial: int = -1,
        extra_right_context_final: int = -1,
        acoustic_scale: float = 1.0,
        use_priors: bool = False,
        apply_exp: bool = False,
    ) -> FloatArray:
        """The network's output for one utterance, float32 (output frames, dim).

        `features` have shape (frames, dim). `ivectors` are one vector (dim,) or, with
        `online_ivector_period` frames from one to the next, a matrix (rows, dim). The other
        arguments are the options of nnet3-compute, with its defaults; `use_priors` subtracts the
        logs of the priors of a .mdl file. DataError for inputs that do not fit or are not finite.

        The prepared network is kept until a parameter or property changes, so further calls are
        quick. Threads may call this method; calls for one network take turns.
        """
        matrix = float_matrix("features", features)
        options = SimpleComputationOptions(
            extra_left_context,
            extra_right_context,
            extra_left_context_initial,
            extra_right_context_final,
            frame_subsampling_factor,
            frames_per_chunk,
            acoustic_scale,
        )
        with self._lock:
            computer = self._computer_for(options, use_priors)
            output = computer.compute(matrix, _ivectors(ivectors, online_ivector_period))
        return np.exp(output, out=output) if apply_exp else output

    def _computer_for(
        self, options: SimpleComputationOptions, use_priors: bool
    ) -> UtteranceComputer:
        """The object that computes outputs; the last one if network and arguments are the same."""
        state = options, use_priors, self._digest()
        if self._computer is None or self._computer[0] != state:
            if use_priors and self.transition_model is None:
                raise OptionError("use_priors needs a network that was read from a .mdl file")
            network = self.copy()
            with RandomNumbers(0), new_objects():
                prepare_for_outputs(network, self.transition_model is not None)
                priors = self.priors if use_priors else None
                self._computer = state, computer_together(network, options, priors)
        return self._computer[1]

    def _digest(self) -> bytes:
        """A digest of the network's file, to detect a change of any property or parameter."""
        digest = hashlib.blake2b(self.priors.tobytes())
        file = SimpleNamespace(write=digest.update)
        super().write(Writer(cast(BinaryIO, file), True, "a digest"))
        return digest.digest()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_computer": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())


def _ivectors(given: ArrayLike | None, period: int) -> Ivectors | None:
    """Convert a vector or matrix of i-vectors; `period` is the frames from one to the next.

    OptionError or DataError if period or shape do not fit.
    """
    if given is None:
        return None
    if np.ndim(given) == 1:
        return Ivectors(float_matrix("i-vectors", np.asarray(given)[None])[0])
    rows = float_matrix("i-vectors", given)
    if period < 1:
        raise OptionError("i-vectors in a matrix need online_ivector_period, greater than 0")
    return Ivectors(rows, period)
