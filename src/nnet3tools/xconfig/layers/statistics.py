"""Means and standard deviations over a range of time."""

import re

from nnet3tools.xconfig.layer import INPUT, ConfigLines, Layer, flag
from nnet3tools.xconfig.options import ANY, Check, Option, options
from nnet3tools.xconfig.registry import register

_CONFIG = re.compile(r"mean(\+stddev)?(\+count)?\(" + ":".join([r"(-?\d{1,9})"] * 4) + r"\)", re.A)
_FORM = "mean[+stddev][+count](<-left-context>:<input-period>:<stats-period>:<right-context>)"


@register("stats-layer")
class StatsLayer(Layer):
    """Mean, standard deviation and log count from left-context to right-context."""

    OPTIONS = options(
        INPUT,
        dim=Option(-1, ANY),
        config=Option("", Check(lambda v: _CONFIG.fullmatch(str(v)) is not None, _FORM)),
    )

    def derive(self) -> None:
        """Set `dim` from the statistics in `config`; ConfigError if a given dimension disagrees."""
        if (match := _CONFIG.fullmatch(self["config"])) is None:
            return
        self._stddev, self._count = match[1] is not None, match[2] is not None
        left, self._input_period, self._period, self._right = map(int, match.groups()[2:])
        self._left = -left
        dim = self.input.dim * (2 if self._stddev else 1) + self._count
        self.require(
            self["dim"] <= 0 or self["dim"] == dim,
            f"option 'dim': expected {dim}, found {self['dim']}",
        )
        self.values["dim"] = dim

    def check(self) -> None:
        """ConfigError unless input-period divides stats-period, and this divides both contexts."""
        periods, contexts = (self._input_period, self._period), (self._left, self._right)
        self.require(
            min(periods) > 0
            and min(contexts) >= 0
            and all(context % self._period == 0 for context in contexts)
            and self._period % self._input_period == 0,
            "option 'config': expected contexts that are multiples of stats-period, which is a "
            f"multiple of input-period, found '{self['config']}'",
        )

    def _part(self, what: str) -> str:
        return f"-{what}-{self._left}-{self._right}"

    def write(self, out: ConfigLines) -> str:
        """Add statistics extraction and pooling; return Round(<pooling's node>, stats-period)."""
        stats = out.step(
            self._part("extraction"),
            "StatisticsExtractionComponent",
            self.input.node,
            input_dim=self.input.dim,
            input_period=self._input_period,
            output_period=self._period,
            include_variance=flag(self._stddev),
        )
        pooled = out.step(
            self._part("pooling"),
            "StatisticsPoolingComponent",
            stats,
            input_dim=1 + self.input.dim * (2 if self._stddev else 1),
            input_period=self._period,
            left_context=self._left,
            right_context=self._right,
            num_log_count_features=int(self._count),
            output_stddevs=flag(self._stddev),
        )
        return f"Round({pooled}, {self._period})"
