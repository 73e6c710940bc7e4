"""Declared: classes whose files, config lines, info lines and copies follow from their fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeVar

from nnet3tools.errors import UserError
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.components.field import Field
from nnet3tools.nnet.config import ConfigLine

D = TypeVar("D", bound="Declared")


class Declared:
    """Base class of objects with declared fields (field.py), which files and configs follow.

    Files have the fields in the order of declaration, those of base classes first. A class that
    redeclares a base class's field moves it to its own position. FIELDS are all fields in this
    order. `type_name` is the token that opens the object in files; one of CLOSING_TOKENS closes it.
    INFO names the fields and properties on the info line, KEYS config keys that are not fields.
    HAS_SETTINGS: whether a changed field makes recorded runs of programs invalid.
    """

    type_name: ClassVar[str]
    """Kaldi's Type(): the token without brackets."""
    FIELDS: ClassVar[tuple[Field[Any], ...]] = ()
    HAS_SETTINGS: ClassVar[bool] = True
    """See tensor/settings.py."""
    INFO: ClassVar[str] = ""
    """Names between blanks; properties that are None are omitted."""
    KEYS: ClassVar[str] = ""
    """Config keys that do not come from one field each, and defaults that fields do not show.

    Words `key`, `key=default`, `[key]` for a key that may be absent, `-key` for one that a base
    class has and this class has not (reference.py).
    """
    CLOSING_TOKENS: ClassVar[tuple[str, ...]] = ("</{}>",)
    """The first one is written."""

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        fields: dict[str, Field[Any]] = {}
        for base in reversed(cls.__mro__):
            for name, value in vars(base).items():
                fields.pop(name, None)
                if isinstance(value, Field):
                    fields[name] = value
        cls.FIELDS = tuple(fields.values())

    def __init__(self, **values: Any) -> None:
        """Set the fields named in `values`; other fields have their defaults."""
        for field in self.FIELDS:
            field.begin(self)
        for name, value in values.items():
            if not isinstance(getattr(type(self), name, None), Field):
                raise TypeError(f"{type(self).__name__} has no field '{name}'")
            setattr(self, name, value)
        if values:
            self.derive()

    def derive(self) -> None:
        """Compute attributes that depend on fields; called after the fields have changed."""

    def problem(self) -> str | None:
        """A sentence about an inconsistency among the fields; None if they are consistent."""
        return None

    # -- files

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read an object's fields up to its closing token; the opening token was read before."""
        self = cls()
        if reader.peek_token() == f"<{cls.type_name}>":  # some old files repeat the token
            reader.read_token()
        for field in cls.FIELDS:
            field.read(reader, self)
        for field in cls.FIELDS:
            field.after_read(self)
        self._check(lambda problem: reader.error(f"{cls.type_name}: {problem}"))
        start, closing = reader.offset, [t.format(cls.type_name) for t in cls.CLOSING_TOKENS]
        if (found := reader.read_token()) not in closing:
            raise reader.error(f"expected {' or '.join(closing)}, found {found}", start)
        self.derive()
        return self

    def write(self, writer: Writer) -> None:
        """Write opening token, fields and closing token exactly as Kaldi does."""
        writer.write_token(f"<{self.type_name}>")
        for field in self.FIELDS:
            field.write(writer, self)
        writer.write_token(self.CLOSING_TOKENS[0].format(self.type_name))

    # -- config lines

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        """Make an object from the key=value pairs of a config line; ConfigError if they are wrong.

        The caller reports keys that were not read.
        """
        self = cls()
        for field in cls.FIELDS:
            field.from_config(line, self)
        self.init_from_config(line)
        self._check(line.error)
        self.derive()
        return self

    def init_from_config(self, line: ConfigLine) -> None:
        """Set attributes that do not come from one key each, such as random initial parameters.

        Called with the config line after all fields have been set. Subclasses override it.
        """

    def _check(self, error: Callable[[str], UserError]) -> None:
        problem = next((p for f in self.FIELDS if (p := f.owner_problem(self))), None)
        if (problem := problem or self.problem()) is not None:
            raise error(problem)

    # -- info lines

    def info(self) -> str:
        """The line that nnet3-info shows, without a newline."""
        return ", ".join(filter(None, [self.type_name, self.info_of(self.INFO)]))

    def info_of(self, names: str) -> str:
        """The text `key=value, ...` for those of the blank-separated `names` that have a value."""
        return ", ".join(filter(None, map(self._info_of, names.split())))

    def _info_of(self, name: str) -> str:
        declared = getattr(type(self), name, None)
        if isinstance(declared, Field):
            return declared.info(self)
        value = getattr(self, name)
        text = f"{value:g}" if isinstance(value, float) else str(value)
        return "" if value is None else f"{name.replace('_', '-')}={text}"

    # operations on all fields

    def map_arrays(self, function: Callable[[Any], Any]) -> None:
        """Replace each floating-point array in the fields by `function` of the array."""
        for field in self.FIELDS:
            field.map_arrays(self, function)

    def arrays(self) -> list[Any]:
        """The floating-point arrays in the fields."""
        return [array for field in self.FIELDS for array in field.arrays(self)]

    def freeze(self) -> None:
        """Make the arrays in the fields read-only if they are on the host."""
        for field in self.FIELDS:
            field.freeze(self)

    def num_bytes(self) -> int:
        """Size of the floating-point arrays in bytes, except those of natural gradient."""
        return sum(field.num_bytes(self) for field in self.FIELDS)

    def structure(self) -> list[object]:
        """The field values that compiled programs depend on: integers, flags and texts."""
        return [s for field in self.FIELDS if (s := field.structure(self)) is not None]


class Part(Field[D]):
    """Field whose value is an object of `cls`, a class with declared fields (Declared)."""

    def __init__(self, cls: type[D], token: str = "") -> None:
        super().__init__(token)
        self.cls = cls

    def read_value(self, reader: Reader) -> D:
        return self.cls.read(reader)

    def write_value(self, writer: Writer, value: D) -> None:
        value.write(writer)

    def from_config(self, line: ConfigLine, owner: Any) -> None:
        setattr(owner, self.name, self.cls.from_config(line))

    def freeze(self, owner: Any) -> None:
        getattr(owner, self.name).freeze()

    def structure(self, owner: Any) -> object:
        return getattr(owner, self.name).structure()

    def info(self, owner: Any) -> str:
        return str(getattr(owner, self.name).info())
