"""Lines of an xconfig file, and errors that name them."""

from nnet3tools.errors import ConfigError, TextError
from nnet3tools.fast_dataclasses import dataclass


@dataclass(frozen=True)
class XconfigLine:
    """A line of an xconfig file: the type of its layer, values by key, and its position."""

    layer_type: str
    values: dict[str, str]
    text: str
    file: str
    number: int

    def error(self, message: str) -> ConfigError:
        """Make a ConfigError about this line."""
        return ConfigError(message, self.file, self.number, self.text)


def read_lines(text: str, file: str) -> list[XconfigLine]:
    """Parse the lines of an xconfig file, skipping comments; ConfigError for a wrong line."""
    from nnet3tools.grammars.lines import read_layer

    lines = []
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            found = read_layer(line)
        except TextError as error:
            raise ConfigError(str(error), file, number) from None
        if found is not None:
            shown = " ".join(line.split("#", 1)[0].split())
            lines.append(XconfigLine(*found, shown, file, number))
    if not lines:
        raise ConfigError("no layers: the xconfig file is empty", file)
    return lines
