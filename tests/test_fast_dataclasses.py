"""Fast dataclasses behave as the standard library's."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from nnet3tools import fast_dataclasses


def classes(module: Any) -> dict[str, type]:
    """The same classes, declared with one module's decorator."""

    @module.dataclass
    class Plain:
        number: int
        names: list[str] = module.field(default_factory=list)
        shared: ClassVar[int] = 3

        def __post_init__(self) -> None:
            self.number += 1

    @module.dataclass(frozen=True)
    class Frozen:
        number: int
        text: str = "a"
        hidden: int = module.field(default=0, repr=False, compare=False, kw_only=True)

    @module.dataclass(frozen=True)
    class Derived(Frozen):
        text: str = "b"
        last: float = 1.0

    @module.dataclass(frozen=True, slots=True)
    class Slotted:
        number: int
        text: str = "a"

    @module.dataclass(frozen=True, slots=True)
    class DerivedSlotted(Slotted):
        last: tuple[int, ...] = ()

    @module.dataclass
    class Later:
        number: int
        computed: int = module.field(init=False)
        constant: int = module.field(default=5, init=False)

        def __post_init__(self) -> None:
            self.computed = self.number * 2

    @module.dataclass(eq=False, repr=False)
    class Identity:
        number: int = 0

    @module.dataclass
    class OwnHash:
        number: int

        def __hash__(self) -> int:
            return 7

    @module.dataclass(frozen=True)
    class OwnEqual:
        number: int

        def __eq__(self, other: object) -> bool:
            return True

    @module.dataclass
    class Empty:
        pass

    found = locals()
    return {name: found[name] for name in found if name not in ("module",)}


def outcome(function: Callable[..., Any], *args: Any, **values: Any) -> Any:
    """What a call returns, or the type of what it raises."""
    try:
        return function(*args, **values)
    except Exception as error:
        return type(error)


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1,), {}),
    ((1, "c"), {}),
    ((1,), {"text": "b"}),
    ((), {"number": 2}),
    ((1, "a", 2), {}),
    ((1,), {"hidden": 4}),
    ((1, "b", 2.0), {"hidden": 4}),
    ((1,), {"unknown": 1}),
    ((1,), {"number": 1}),
]
FAST, STANDARD = classes(fast_dataclasses), classes(dataclasses)


def behavior(cls: Any, args: tuple[Any, ...], values: dict[str, Any]) -> list[Any]:
    """What can be seen of an object: text, fields, equality, hash, changes of attributes."""
    made = outcome(cls, *args, **values)
    if isinstance(made, type):
        return [made]
    seen = [
        repr(made).split(" object at ")[0],
        dataclasses.asdict(made),
        made == copy.copy(made),
        made == 3,
        type(made).__hash__ is None,
        outcome(hash, made) if type(made).__hash__ is not object.__hash__ else None,
    ]
    # With slots, other names are a TypeError in Python 3.11: a mistake of its own.
    for name in ("number", "text", *(["other"] if hasattr(made, "__dict__") else [])):
        seen += [outcome(setattr, made, name, 9), outcome(delattr, made, name)]
    return seen


@pytest.mark.parametrize("name", STANDARD)
@pytest.mark.parametrize(("args", "values"), CALLS)
def test_objects_behave_as_the_standard_librarys(name, args, values) -> None:
    assert behavior(FAST[name], args, values) == behavior(STANDARD[name], args, values)


@pytest.mark.parametrize("name", STANDARD)
def test_fields_replace_and_patterns_are_the_standard_librarys(name) -> None:
    assert FAST[name].__match_args__ == STANDARD[name].__match_args__  # type: ignore[attr-defined]
    names = [item.name for item in dataclasses.fields(STANDARD[name])]  # type: ignore[arg-type]
    assert [item.name for item in fast_dataclasses.fields(FAST[name])] == names  # type: ignore[arg-type]
    assert [item.name for item in dataclasses.fields(FAST[name])] == names  # type: ignore[arg-type]
    if "text" in names:
        changed = [
            replace(FAST[name](1), text="z")
            for replace in (fast_dataclasses.replace, dataclasses.replace)
        ]
        assert changed[0] == changed[1] != FAST[name](1)


def test_a_field_that_is_no_argument_cannot_be_replaced() -> None:
    with pytest.raises(ValueError, match="computed"):
        fast_dataclasses.replace(FAST["Later"](1), computed=3)  # type: ignore[type-var]


@fast_dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """A class that pickle finds by name."""

    number: int
    text: str = "a"


def test_frozen_objects_with_slots_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Sent(3))) == Sent(3)
    assert not hasattr(Sent(3), "__dict__")


def test_a_standard_dataclass_can_derive_from_a_fast_one() -> None:
    made = dataclasses.make_dataclass(
        "Made", [("more", int, 4)], bases=(FAST["Frozen"],), frozen=True
    )
    assert made(1).more == 4
    assert made(1).text == "a"
    names = [item.name for item in fast_dataclasses.fields(made)]  # type: ignore[arg-type]
    assert names == ["number", "text", "hidden", "more"]
