"""Config lines and files of components that must be refused, with what the message says."""

import io

import pytest

from nnet3tools.errors import ConfigError, DataError
from nnet3tools.io.stream import Reader
from nnet3tools.nnet.components.registry import read_component
from support.harness import make, to_bytes

ATTENTION = "RestrictedAttention key-dim=3 value-dim=4 num-left-inputs=2 num-right-inputs=1"
CONV = "TimeHeightConvolution bias-stddev=1 num-filters-in=2 num-filters-out=3 height-in=5"
PLAIN, THREE = f"{CONV} height-out=5", "height-offsets=-1,0,1 time-offsets=-1,0,1"
TDNN = "Tdnn input-dim=4 output-dim=5 time-offsets=0,1"
POOL = "StatisticsPooling input-dim=3 left-context=3 right-context=2"
LINES = rf"""
RestrictedAttention value-dim=4 num-left-inputs=2 num-right-inputs=1 => key-dim
RestrictedAttention key-dim=0 value-dim=4 num-left-inputs=2 num-right-inputs=1 => must be positive
RestrictedAttention key-dim=3 value-dim=4 num-left-inputs=0 num-right-inputs=0 => nor both 0
{ATTENTION} num-left-inputs-required=3 => must be in 0..2
{ATTENTION} num-right-inputs-required=2 => must be in 0..1
{ATTENTION} key-scale=1.5 => key-scale
{ATTENTION} time-stride=0 => time-stride
BackpropTruncation =>
BackpropTruncation dim=0 =>
BackpropTruncation dim=3 zeroing-interval=0 =>
BackpropTruncation dim=3 scale=0 =>
BackpropTruncation dim=3 clipping-threshold=-1 =>
ElementwiseProduct input-dim=7 output-dim=3 =>
ElementwiseProduct input-dim=3 output-dim=3 =>
SumBlock input-dim=7 output-dim=3 =>
Permute column-map=0,1,1 =>
ClipGradient dim=3 clipping-threshold=-1 =>
RepeatedAffine input-dim=7 output-dim=3 num-repeats=2 =>
DropoutMask output-dim=3 dropout-proportion=2 =>
Composite num-components=1 component1='type=NoSuchComponent dim=3' =>
Composite num-components=1 component1='type=DropoutComponent dim=3' =>
Composite num-components=2 component1='type=NoOpComponent dim=3' component2='type=NoOpComponent
  dim=4' =>
Maxpooling input-x-dim=4 input-y-dim=2 input-z-dim=3 pool-x-size=3 pool-y-size=1 pool-z-size=3
  pool-x-step=2 pool-y-step=1 pool-z-step=1 =>
Convolution input-x-dim=5 input-y-dim=4 input-z-dim=2 filt-x-dim=3 filt-y-dim=9 filt-x-step=2
  filt-y-step=1 num-filters=3 =>
{CONV} {THREE} => height-out
{PLAIN} time-offsets=0 => expected either offsets
{PLAIN} offsets=0,0;1 => time,height
{PLAIN} offsets=0,0;0,0 => repeated
{PLAIN} height-offsets=1,0 time-offsets=0 => height-offsets must be a sorted
{PLAIN} {THREE} required-time-offsets=2 => required time offsets \[2\]
{PLAIN} height-offsets=7 time-offsets=0 => offset .*height 7.* never inside the input
{CONV} height-out=9 height-offsets=0 time-offsets=0 => output height 5 gets no input
{PLAIN} {THREE} height-subsample-out=0 => height-subsample-out must be positive
{PLAIN} {THREE} max-memory-mb=0 => max-memory-mb must be positive
{PLAIN} {THREE} init-unit=true => num-filters-in and num-filters-out
{PLAIN} {THREE} num-minibatches-history=1 => num-minibatches-history
Distribute input-dim=6 =>
Distribute input-dim=6 output-dim=4 =>
Distribute input-dim=0 output-dim=1 =>
GeneralDropout => dim
GeneralDropout dim=6 block-dim=4 => must divide
GeneralDropout dim=6 dropout-proportion=1.5 => dropout-proportion
GeneralDropout dim=6 specaugment-max-proportion=2 => specaugment
GeneralDropout dim=6 specaugment-max-proportion=0.2 continuous=true => continuous false
SpecAugmentTimeMask dim=6 time-mask-max-frames=1 => above 1
SpecAugmentTimeMask dim=6 zeroed-proportion=1 => zeroed-proportion
SpecAugmentTimeMask dim=6 zeroed-proportion=0.9 time-mask-max-frames=5 => too small
Affine input-dim=3 => output-dim
Affine input-dim=0 output-dim=3 => input-dim must be positive
Affine input-dim=3 output-dim=3 param-stddev=-1 => param-stddev
Affine input-dim=3 output-dim=3 max-change=-1 => max-change
NaturalGradientAffine input-dim=3 output-dim=3 rank-in=0 => rank
NaturalGradientAffine input-dim=3 output-dim=3 alpha=-1 => alpha
Linear input-dim=3 output-dim=x => output-dim
FixedScale scale=1 => dim
PerElementOffset dim=6 block-dim=4 => divide
ScaleAndOffset dim=6 block-dim=4 => divide
ScaleAndOffset dim=6 rank=0 => rank
RectifiedLinear dim=6 block-dim=4 => divide
RectifiedLinear dim=6 self-repair-scale=0.5 => self-repair-scale
Tanh dim=6 self-repair-scale=0.01 self-repair-upper-threshold=0.5 => self-repair-upper-threshold
Normalize dim=6 target-rms=0 => target-rms
BatchNorm dim=6 block-dim=4 => divide
BatchNorm dim=6 epsilon=0 => epsilon
Pnorm input-dim=5 output-dim=2 => divide
SumGroup sizes=1,0 => positive
Dropout dim=5 => dropout-proportion
Dropout dim=5 dropout-proportion=1.5 => between
NoOp dim=-5 => positive
GruNonlinearity cell-dim=0 =>
GruNonlinearity cell-dim=4 recurrent-dim=5 =>
GruNonlinearity rank-in=0 cell-dim=3 =>
LstmNonlinearity cell-dim=0 =>
LstmNonlinearity cell-dim=4 self-repair-scale=0.2 =>
LstmNonlinearity use-dropout=1 =>
StatisticsExtraction => input-dim
StatisticsExtraction input-dim=3 input-period=2 output-period=3 => multiple
StatisticsPooling input-dim=3 => left-context and right-context
StatisticsPooling input-dim=3 left-context=0 right-context=0 => not both 0
{POOL} input-period=2 => multiples of 2
StatisticsPooling input-dim=4 left-context=3 right-context=2 output-stddevs=true => odd input-dim
{POOL} variance-floor=0 => variance-floor
Tdnn input-dim=4 output-dim=5 => time-offsets
Tdnn input-dim=0 output-dim=5 time-offsets=0 => input-dim must be positive
Tdnn input-dim=4 output-dim=5 time-offsets=1,1 => different integers
Tdnn input-dim=4 output-dim=5 time-offsets=a => time-offsets
Tdnn input-dim=4 output-dim=5 time-offsets=0 rank-in=0 => rank must be positive
Tdnn input-dim=4 output-dim=5 time-offsets=0 max-change=-1 => max-change
"""
"""Type (without "Component") and keys => a pattern of the message. Indented lines continue."""

FILES = (
    (f"{ATTENTION}", "<EntropyStats>  [", "<EntropyStats>  [ 1 2", "statistics must be"),
    (
        "BackpropTruncation dim=3 zeroing-interval=5",
        "<ZeroingInterval> 5",
        "<ZeroingInterval> 0",
        "must be positive",
    ),
    (f"{PLAIN} {THREE}", "<HeightIn> 5", "<HeightIn> 0", "<HeightIn> must be positive"),
    (f"{PLAIN} {THREE}", "<Offsets> [ -1,-1 -1,0 ", "<Offsets> [ -1,0 -1,-1 ", "not sorted"),
    (f"{PLAIN} {THREE}", "<NumFiltersOut> 3", "<NumFiltersOut> 4", "parameters of a convolution"),
    (f"{PLAIN} {THREE}", "TimeOffsets> [ -1 0 1 ]", "TimeOffsets> [ ]", "no required"),
    (
        "Distribute input-dim=6 output-dim=2",
        "<OutputDim> 2",
        "<OutputDim> 4",
        "DistributeComponent: output-dim must divide input-dim, found 4 and 6",
    ),
    (
        "GeneralDropout dim=6",
        "<BlockDim> 6",
        "<BlockDim> 4",
        "block-dim must divide dim, found 4 and 6",
    ),
    (
        "StatisticsExtraction input-dim=3 output-period=4",
        "<OutputPeriod> 4",
        "<OutputPeriod> 0",
        "<OutputPeriod> must be positive, found 0",
    ),
    (
        "StatisticsPooling input-dim=7 left-context=4 right-context=2 output-stddevs=true",
        "<LeftContext> 4",
        "<LeftContext> -4",
        "StatisticsPoolingComponent: left-context",
    ),
    (TDNN, "<TimeOffsets> [ 0 1 ]", "<TimeOffsets> [ 0 1 2 ]", "3 time-offsets"),
    (TDNN, "<TimeOffsets> [ 0 1 ]", "<TimeOffsets> [ 1 1 ]", "different integers"),
    (TDNN, "<BiasParams>  [", "<BiasParams>  [ 1", "bias of dimension 6"),
    (TDNN, "<LinearParams>", "<Linear>", "<LinearParams>"),
)
"""A good component, a part of its file in text, what stands there instead, the message."""


def component(text: str):
    kind, *keys = text.split(" ")
    return make(" ".join([f"type={kind}Component", *keys]))


@pytest.mark.parametrize("case", LINES.strip().replace("\n  ", " ").splitlines())
def test_a_bad_config_line_is_refused(case: str) -> None:
    line, message = case.split(" =>")
    with pytest.raises(ConfigError, match=message.strip() or None):
        component(line)


@pytest.mark.parametrize(("line", "old", "new", "message"), FILES)
def test_a_bad_file_is_refused(line: str, old: str, new: str, message: str) -> None:
    text = to_bytes(component(line), False).decode()
    assert text.count(old) == 1
    with pytest.raises(DataError, match=message):
        read_component(Reader(io.BytesIO(text.replace(old, new).encode()), "test", False))
