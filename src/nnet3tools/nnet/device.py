"""Moving a network between host and device: parameters, statistics, natural-gradient state.

Whatever arrays of floating-point numbers a component holds are moved, however deep in lists, dicts
and objects, and its Counts; indexes stay on the host, as operators upload them once. A class
keeps arrays that its host code works on by naming the attributes in `HOST_ARRAYS`.
"""

from __future__ import annotations

from typing import Any

from nnet3tools import tensor
from nnet3tools.nnet.components.array_fields import Count
from nnet3tools.nnet.components.declared import Declared
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.tensor.registry import device_of

__all__ = ["move_nnet"]


def move_nnet(nnet: Nnet, like: Any = None) -> None:
    """Put all float arrays of a network's components on the device of `like` (None: the host)."""
    moved: dict[int, tuple[Any, Any]] = {}
    if like is not None and device_of(like) == "numpy":
        return  # what was moved to a device is fetched by saying None
    for component in nnet.components:
        _move_attributes(component, like, moved)


def _move_attributes(owner: Any, like: Any, moved: dict[int, tuple[Any, Any]]) -> None:
    if id(owner) in moved:
        return
    moved[id(owner)] = owner, owner
    if isinstance(owner, Declared):
        owner.map_arrays(lambda array: _moved(array, like, moved))
        for field in owner.FIELDS:
            if isinstance(field, Count):
                field.move(owner, like)
    kept = getattr(owner, "HOST_ARRAYS", ())
    attributes = vars(owner)
    for name, value in list(attributes.items()):
        new = value if name in kept else _moved(value, like, moved)
        if new is not value:
            object.__setattr__(owner, name, new)


def _moved(value: Any, like: Any, moved: dict[int, tuple[Any, Any]]) -> Any:
    """The value with its arrays on the other side; the same object if nothing changes."""
    if _is_float_array(value):
        if id(value) not in moved:
            moved[id(value)] = value, _move_array(value, like)
        return moved[id(value)][1]
    if isinstance(value, list):
        value[:] = [_moved(v, like, moved) for v in value]
    elif isinstance(value, dict):
        value.update({k: _moved(v, like, moved) for k, v in value.items()})
    elif isinstance(value, tuple) and any(_is_float_array(v) for v in value):
        return tuple(_moved(v, like, moved) for v in value)
    elif type(value).__module__.startswith("nnet3tools.nnet") and hasattr(value, "__dict__"):
        _move_attributes(value, like, moved)
    return value


def _is_float_array(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    return dtype is not None and getattr(value, "ndim", 0) > 0 and dtype.kind == "f"


def _move_array(array: Any, like: Any) -> Any:
    if like is None:
        return tensor.to_host(array)
    return array if device_of(array) != "numpy" else tensor.asarray(array, like=like)
