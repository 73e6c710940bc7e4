"""The standard library's dataclasses, for programs that must start fast.

`dataclasses.dataclass` compiles up to six methods when it declares a class, which takes 0.5 to 1
ms, and imports `inspect`. Here `__init__` is compiled when the first object is made, and no other
method is compiled. The classes behave as the standard library's. `dataclasses.fields`, `replace`
and `asdict` accept them, too. Not supported: InitVar, KW_ONLY, order, unsafe_hash, and an object
that contains itself in `repr`.
"""

from __future__ import annotations

import operator
from types import MemberDescriptorType, SimpleNamespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import Field, dataclass, field, fields, replace
else:
    _ABSENT = object()
    _FIELDS = "__fast_dataclass_fields__"
    _set = object.__setattr__

    class Field:
        """Description of one attribute of a dataclass: name, type, default and flags."""

        init = repr = compare = True
        kw_only = False

        def __init__(self, default, default_factory, metadata, **flags):
            self.default, self.default_factory, self.metadata = default, default_factory, metadata
            vars(self).update(flags)

        def standard(self):
            """This description as a `dataclasses.Field` of the standard library."""
            import dataclasses

            names = ("metadata", "init", "repr", "compare", "kw_only")
            given = {name: getattr(self, name) for name in names}
            if self.default is not _ABSENT:
                given["default"] = self.default
            if self.default_factory is not None:
                given["default_factory"] = self.default_factory
            made = dataclasses.field(**given)
            made.name, made.type, made._field_type = self.name, self.type, dataclasses._FIELD
            return made

    class _StandardFields:
        """Descriptor of __dataclass_fields__: a dict of the class's `dataclasses.Field`s."""

        def __get__(self, instance, owner):
            return {name: item.standard() for name, item in getattr(owner, _FIELDS).items()}

    def field(*, default=_ABSENT, default_factory=None, metadata=None, **flags):
        """An attribute with more options than a default, as `dataclasses.field`."""
        return Field(default, default_factory, metadata or {}, **flags)

    def fields(class_or_instance):
        """The fields of a dataclass or of its object, in order."""
        cls = class_or_instance if isinstance(class_or_instance, type) else type(class_or_instance)
        nearest = next(
            (c.__dict__ for c in cls.__mro__ if "__dataclass_fields__" in c.__dict__), {}
        )
        if _FIELDS in nearest:
            return tuple(nearest[_FIELDS].values())
        import dataclasses

        return dataclasses.fields(class_or_instance)

    def replace(instance, /, **changes):
        """A new object of the same dataclass with some fields changed."""
        for item in fields(instance):
            if item.init and item.name not in changes:
                changes[item.name] = getattr(instance, item.name)
            elif not item.init and item.name in changes:
                raise ValueError(f"field {item.name} is not an argument of __init__")
        return type(instance)(**changes)

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True, slots=False):
        """Class decorator that works like the standard library's `dataclasses.dataclass`."""
        if cls is None:
            return lambda decorated: _processed(decorated, frozen, eq, repr, slots)
        return _processed(cls, frozen, eq, repr, slots)

    def _processed(cls, frozen, eq, repr, slots):
        found = _collected(cls)
        if slots:
            cls = _with_slots(cls, found)
        setattr(cls, _FIELDS, found)
        cls.__dataclass_fields__, cls.__dataclass_params__ = (
            _StandardFields(),
            SimpleNamespace(frozen=frozen),
        )
        explicit = cls.__dict__
        methods = {"__init__": _later_init(cls)}
        if repr:
            methods["__repr__"] = _repr([item.name for item in found.values() if item.repr])
        if eq:
            values = _values([item.name for item in found.values() if item.compare])
            if explicit.get("__hash__") is None and (
                "__hash__" not in explicit or "__eq__" in explicit
            ):
                cls.__hash__ = (lambda self: hash(values(self))) if frozen else None
            methods["__eq__"] = _eq(values)
        if frozen:
            methods["__setattr__"], methods["__delattr__"] = _frozen(cls, found)
        methods["__match_args__"] = tuple(
            item.name for item in found.values() if item.init and not item.kw_only
        )
        for name, method in methods.items():
            if name not in explicit:
                setattr(cls, name, method)
        return cls

    def _collected(cls):
        """Return name -> Field for the attributes of `cls` and its bases.

        A class attribute that is a Field is replaced by its default, or deleted if it has none.
        """
        found = {}
        for base in reversed(cls.__mro__[1:]):
            found.update(base.__dict__.get(_FIELDS, {}))
        for name, kind in cls.__annotations__.items():
            if str(kind).removeprefix("typing.").startswith("ClassVar"):
                continue
            item = default = getattr(cls, name, _ABSENT)
            if not isinstance(default, Field):
                if type(default) is MemberDescriptorType:
                    default = _ABSENT
                item = Field(default, None, {})
            elif default.default is _ABSENT:
                delattr(cls, name)
            else:
                setattr(cls, name, default.default)
            item.name, item.type = name, kind
            found[name] = item
        return found

    def _with_slots(cls, found):
        """A copy of `cls` with __slots__ for its own fields in `found` (name -> Field).

        The copy also gets methods by which pickle sets the fields.
        """
        inherited = {name for base in cls.__mro__ for name in base.__dict__.get("__slots__", ())}
        omitted = {*found, "__dict__", "__weakref__"}
        body = {name: value for name, value in cls.__dict__.items() if name not in omitted}
        body["__slots__"] = tuple(name for name in found if name not in inherited)
        made = type(cls)(cls.__name__, cls.__bases__, body)
        made.__qualname__ = cls.__qualname__
        made.__getstate__ = lambda self: [getattr(self, name) for name in found]
        made.__setstate__ = lambda self, state: [*map(_set, [self] * len(state), found, state)]
        return made

    def _later_init(cls):
        """An __init__ that compiles the class's real __init__, installs it and calls it."""

        def __init__(self, *args, **values):
            compiled = _init(cls)
            if cls.__init__ is __init__:
                cls.__init__ = compiled
            compiled(self, *args, **values)

        return __init__

    def _init(cls):
        """Compile and return the __init__ that sets the fields of the dataclass `cls`."""
        names = {"_set": _set, "_ABSENT": _ABSENT}
        positional, keywords, body = [], [], []
        assignment = (
            "_set(self, '{0}', {1})" if cls.__dataclass_params__.frozen else "self.{0} = {1}"
        )
        for name, item in getattr(cls, _FIELDS).items():
            parameter = value = name
            if item.default_factory is not None:
                names[f"_make_{name}"] = item.default_factory
                parameter = f"{name}=_ABSENT"
                value = f"_make_{name}()"
                if item.init:
                    value += f" if {name} is _ABSENT else {name}"
            elif item.default is not _ABSENT:
                names[f"_default_{name}"] = item.default
                parameter = f"{name}=_default_{name}"
                value = name if item.init else f"_default_{name}"
            elif not item.init:
                continue
            if item.init:
                (keywords if item.kw_only else positional).append(parameter)
            body.append(assignment.format(name, value))
        if hasattr(cls, "__post_init__"):
            body.append("self.__post_init__()")
        parameters = ", ".join(["self", *positional, *(["*", *keywords] if keywords else [])])
        exec(f"def __init__({parameters}):\n " + ("\n ".join(body) or "pass"), names)
        names["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
        return names["__init__"]

    def _repr(names):
        def __repr__(self):
            shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
            return f"{type(self).__qualname__}({shown})"

        return __repr__

    def _values(names):
        """A function from an object to the tuple of its fields with these names."""
        if len(names) > 1:
            return operator.attrgetter(*names)
        return lambda self: tuple([getattr(self, name) for name in names])

    def _eq(values):
        def __eq__(self, other):
            if other.__class__ is not self.__class__:
                return NotImplemented
            return values(self) == values(other)

        return __eq__

    def _frozen(cls, found):
        """__setattr__ and __delattr__ that refuse to change a class's fields `found`."""

        def refuse(self, name, verb):
            if type(self) is cls or name in found:
                from dataclasses import FrozenInstanceError

                raise FrozenInstanceError(f"cannot {verb} field {name!r}")

        def __setattr__(self, name, value):
            refuse(self, name, "assign to")
            super(cls, self).__setattr__(name, value)

        def __delattr__(self, name):
            refuse(self, name, "delete")
            super(cls, self).__delattr__(name)

        return __setattr__, __delattr__
