"""Checks of a network that is to be trained: no NaN or infinity, no integer weights."""

from __future__ import annotations

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import DataError, UserError
from nnet3tools.nnet.network import Network


def components_not_finite(nnet: Network) -> list[str]:
    """The names of the components that contain NaN or infinity."""
    return [
        name
        for name, component in zip(nnet.component_names, nnet.components, strict=True)
        if not all(np.isfinite(tensor.to_host(array)).all() for array in component.arrays())
    ]


def check_nnet_finite(nnet: Network, name: str) -> None:
    """Raise DataError, with the model's `name`, if a network contains NaN or infinity."""
    if bad := components_not_finite(nnet):
        raise DataError(f"{name}: {quoted(bad)} of the model: NaN or infinity among its numbers")


def check_float(nnet: Network, name: str) -> None:
    """Raise UserError, with the model's `name`, if a network has quantized components."""
    pairs = zip(nnet.component_names, nnet.components, strict=True)
    if found := [name for name, component in pairs if component.is_quantized]:
        raise UserError(
            f"{name}: the network is quantized ({quoted(found)}); nnet3-copy --dequantize=true "
            "makes it a float network"
        )


def quoted(names: list[str]) -> str:
    """The first three names in quotes, as text for a message."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    noun = "component" if len(names) == 1 else "components"
    return f"{noun} {', '.join(map(repr, names[:3]))}{more}"
