"""Fields: declared attributes of components, from which files, configs and info lines follow.

A component, or a set of precomputed indexes, declares its attributes in its class body, in the
order in which Kaldi writes them:

    dim = Int("<Dim>", "dim", positive=True)
    backprop_scale = Float("<BackpropScale>", "backprop-scale", 1.0, show_default=False)

The first argument is the token in files ("": no token of its own, the value follows the one before;
None: not in files), the second the key in config lines (None: not configurable), the third the
default. A default may be a function of the component (`lambda c: c.dim`); fields without
a default are required in config lines. declared.py and base.py read, write,
show, copy, move, scale and add fields; array_fields.py has parameters and statistics. Special cases
of a component are small subclasses in its own file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, overload

from nnet3tools.tensor.settings import note_setting

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine
    from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient

T = TypeVar("T")

REQUIRED: Any = object()
"""The default of a field that has no default."""


class Field(Generic[T]):
    """A declared attribute of a component (its `owner`), with a value of type T.

    METHODS are the names of the reader's, writer's and config line's methods for a value.
    is_parameter: whether training changes the value.

    optional: may be missing in files, which then imply the default; `omit` implies that.
    omit: not written at its default value.
    when: written if this predicate holds for the owner.
    also: another token that files may have in place of `token`.
    of: paths such as "preconditioner_in.rank" (an attribute of another field's value), which store
        the value; the field only names it in files, configs and info lines.
    key: the name in info lines; by default the config key.
    show_default: whether info lines show the default value, too; by default unless `omit`.
    """

    def __init__(
        self,
        token: str | None = None,
        config: str | None = None,
        default: Any = REQUIRED,
        *,
        optional: bool = False,
        omit: bool = False,
        when: Callable[[Any], bool] | None = None,
        also: str | None = None,
        of: tuple[str, ...] | str = (),
        key: str | None = None,
        show_default: bool | None = None,
    ) -> None:
        self.token, self.config, self.default = token, config, default
        self.optional, self.omit, self.when = optional or omit or when is not None, omit, when
        self.tokens = [t for t in (token, also) if t is not None]
        self.paths = tuple(p.rpartition(".")[::2] for p in ((of,) if isinstance(of, str) else of))
        self.key = key or config
        self.show_default = not omit if show_default is None else show_default
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def begin(self, owner: Any) -> None:
        """If another object stores the field's value (argument `of`), set its default there."""
        if self.paths and self.default is not REQUIRED:
            setattr(owner, self.name, self.default)

    # -- the value

    @overload
    def __get__(self, owner: None, cls: type) -> Self: ...

    @overload
    def __get__(self, owner: object, cls: type) -> T: ...

    def __get__(self, owner: object | None, cls: type) -> Any:
        if owner is None:
            return self
        if self.paths:
            holder, attribute = self.paths[0]
            return getattr(getattr(owner, holder) if holder else owner, attribute)
        try:
            return owner.__dict__[self.name]
        except KeyError:
            return self.default_of(owner)

    def __set__(self, owner: Any, value: T) -> None:
        """Set the value in the component `owner`; a change makes recorded computations invalid."""
        if not self.paths:
            before = owner.__dict__.get(self.name, REQUIRED)
            owner.__dict__[self.name] = value
            if owner.HAS_SETTINGS:
                note_setting(before, value)
        for holder, attribute in self.paths:
            setattr(getattr(owner, holder) if holder else owner, attribute, value)

    def default_of(self, owner: Any) -> T:
        """The field's default for a component that has no value yet."""
        if self.default is REQUIRED:
            raise AttributeError(f"{type(owner).__name__} was given no '{self.name}'")
        return self.default(owner) if callable(self.default) else self.default

    def is_default(self, owner: Any) -> bool:
        """Whether the component's value equals the field's default."""
        return self.default is not REQUIRED and bool(
            getattr(owner, self.name) == self.default_of(owner)
        )

    # the kind of value, defined by subclasses

    is_parameter: ClassVar[bool] = False
    """Whether the value is an array that training changes."""
    METHODS: ClassVar[tuple[str, str, str]]
    """Names of the methods of Reader, Writer and ConfigLine for such values."""

    def read_value(self, reader: Reader) -> T:
        """Read the field's value from a file, after the field's token."""
        return getattr(reader, self.METHODS[0])()

    def write_value(self, writer: Writer, value: T) -> None:
        """Write the field's value to a file, after the field's token."""
        getattr(writer, self.METHODS[1])(value)

    def config_value(self, line: ConfigLine) -> T:
        """The field's value from a config line that has the field's key."""
        return getattr(line, self.METHODS[2])(self.config)

    def problem(self, value: T) -> str | None:
        """What is wrong with `value`, such as "must be positive, found 0"; None if it is valid."""
        return None

    def text(self, value: T) -> str:
        """The text of `value` on an info line."""
        return str(value)

    def owner_problem(self, owner: Any) -> str | None:
        """A sentence if the component's value contradicts its other fields (all set); else None."""
        return None

    def structure(self, owner: Any) -> object:
        """Data of the field's value that compiled programs depend on; None if there are none."""
        return None

    # -- files, configs, info lines

    def read(self, reader: Reader, owner: Any) -> None:
        """Read the field's token and value; if an optional field is missing, keep its default."""
        if self.token is None:
            return
        start = reader.offset
        if self.token and not self._read_token(reader):
            return
        value = self.read_value(reader)
        if (problem := self.problem(value)) is not None:
            raise reader.error(f"{self.token or self.name} {problem}", start)
        setattr(owner, self.name, value)

    def _read_token(self, reader: Reader) -> bool:
        if self.optional and reader.peek_token() not in self.tokens:
            return False
        start, token = reader.offset, reader.read_token()
        if token not in self.tokens:
            raise reader.error(f"expected {' or '.join(self.tokens)}, found {token}", start)
        return True

    def after_read(self, owner: Any) -> None:
        """Convert the component's value with the help of other fields, after all were read."""

    def write(self, writer: Writer, owner: Any) -> None:
        """Write the field's token and value, unless the field is omitted for this component."""
        if self.token is None or not self.is_written(owner):
            return
        if self.token:
            writer.write_token(self.token)
        self.write_value(writer, self.file_value(owner))

    def is_written(self, owner: Any) -> bool:
        """Whether files of this component contain the field."""
        if self.when is not None and not self.when(owner):
            return False
        return not (self.omit and self.is_default(owner))

    def file_value(self, owner: Any) -> Any:
        """The component's value in the form in which files store it."""
        return getattr(owner, self.name)

    def from_config(self, line: ConfigLine, owner: Any) -> None:
        """Set the component's value if the line has the field's key; ConfigError if invalid."""
        if self.config is None:
            return
        if self.config not in line and self.default is not REQUIRED:
            return
        value = self.config_value(line)
        if (problem := self.problem(value)) is not None:
            raise line.error(f"{self.config} {problem}")
        setattr(owner, self.name, value)

    def info(self, owner: Any) -> str:
        """The text `key=value` for an info line; "" if the line omits the field."""
        if not self.show_default and self.is_default(owner):
            return ""
        return f"{self.key}={self.text(getattr(owner, self.name))}"

    # arrays and sums (most fields have none)

    def map_arrays(self, owner: Any, function: Callable[[Any], Any]) -> None:
        """Replace each floating-point array in the component's value by `function` of the array."""

    def arrays(self, owner: Any) -> list[Any]:
        """The floating-point arrays in the field's value of the component `owner`."""
        found: list[Any] = []

        def note(array: Any) -> Any:
            found.append(array)
            return array

        self.map_arrays(owner, note)
        return found

    def scale(self, owner: Any, scale: float) -> None:
        """Multiply a parameter or statistic of the component; 0 sets zero, even in place of NaN."""

    def add(self, owner: Any, alpha: float, other: Any) -> None:
        """Add alpha times `other`'s value to `owner`'s, for a parameter or a statistic."""

    def zero_stats(self, owner: Any) -> None:
        """Set the component's value to zero if the field is a statistic."""

    def freeze(self, owner: Any) -> None:
        """Make the field's host arrays read-only, so that devices may keep copies of them."""
        if hasattr(value := getattr(owner, self.name), "flags"):
            value.flags.writeable = False

    def num_bytes(self, owner: Any) -> int:
        """Size of the value's floating-point arrays in bytes, except those of natural gradient."""
        return sum(int(array.nbytes) for array in self.arrays(owner))

    # -- natural gradient

    def preconditioners(self, owner: Any) -> list[tuple[OnlineNaturalGradient, int]]:
        """Natural-gradient estimates in the field's value, each with the number of its columns."""
        return []

    def freeze_natural_gradient(self, owner: Any, freeze: bool) -> None:
        """Stop (`freeze` true) or resume updates of natural-gradient estimates in the value."""
