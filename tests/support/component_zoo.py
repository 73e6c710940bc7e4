"""One small component of every type, and networks that hold them one at a time."""

from nnet3tools import tensor
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.quantization import quantize

ZOO = {
    "AffineComponent": ("input-dim=4 output-dim=3", 4),
    "BackpropTruncationComponent": ("dim=4 clipping-threshold=2 zeroing-interval=2", 4),
    "BatchNormComponent": ("dim=4 block-dim=2", 4),
    "BlockAffineComponent": ("input-dim=6 output-dim=4 num-blocks=2", 6),
    "ClipGradientComponent": ("dim=4 clipping-threshold=3", 4),
    "CompositeComponent": (
        "num-components=2 max-rows-process=2 component1='type=AffineComponent input-dim=4 "
        "output-dim=3' component2='type=TanhComponent dim=3'",
        4,
    ),
    "ConstantComponent": ("output-dim=4", 4),
    "ConstantFunctionComponent": ("input-dim=4 output-dim=3", 4),
    "ConvolutionComponent": (
        "input-x-dim=4 input-y-dim=3 input-z-dim=2 filt-x-dim=2 filt-y-dim=2 filt-x-step=1 "
        "filt-y-step=1 num-filters=2 input-vectorization-order=zyx",
        24,
    ),
    "DistributeComponent": ("input-dim=6 output-dim=2", 6),
    "DropoutComponent": ("dim=4 dropout-proportion=0.3", 4),
    "DropoutMaskComponent": ("output-dim=4 dropout-proportion=0.4", 4),
    "ElementwiseProductComponent": ("input-dim=6 output-dim=3", 6),
    "ExpressionComponent": (
        'dim=4 params=alpha:4:init=0.25 expression="max(x, 0) + alpha * min(x, 0)"',
        4,
    ),
    "FixedAffineComponent": ("input-dim=4 output-dim=3", 4),
    "FixedBiasComponent": ("dim=4", 4),
    "FixedScaleComponent": ("dim=4", 4),
    "GeneralDropoutComponent": ("dim=6 block-dim=3 dropout-proportion=0.2 time-period=2", 6),
    "GruNonlinearityComponent": ("cell-dim=4 recurrent-dim=2", 16),
    "LinearComponent": ("input-dim=4 output-dim=3", 4),
    "LogSoftmaxComponent": ("dim=4", 4),
    "LstmNonlinearityComponent": ("cell-dim=3", 15),
    "MaxpoolingComponent": (
        "input-x-dim=4 input-y-dim=2 input-z-dim=2 pool-x-size=2 pool-y-size=2 pool-z-size=1 "
        "pool-x-step=2 pool-y-step=2 pool-z-step=1",
        16,
    ),
    "NaturalGradientAffineComponent": ("input-dim=4 output-dim=3", 4),
    "NaturalGradientPerElementScaleComponent": ("dim=4", 4),
    "NaturalGradientRepeatedAffineComponent": ("input-dim=6 output-dim=4 num-repeats=2", 6),
    "NoOpComponent": ("dim=4", 4),
    "NormalizeComponent": ("dim=4 block-dim=2 add-log-stddev=true", 4),
    "OutputGruNonlinearityComponent": ("cell-dim=4", 12),
    "PerElementOffsetComponent": ("dim=4 block-dim=2", 4),
    "PerElementScaleComponent": ("dim=4", 4),
    "PermuteComponent": ("column-map=2,0,1,3", 4),
    "PnormComponent": ("input-dim=6 output-dim=3", 6),
    "RectifiedLinearComponent": ("dim=4 self-repair-scale=0.05", 4),
    "RepeatedAffineComponent": ("input-dim=6 output-dim=4 num-repeats=2", 6),
    "RestrictedAttentionComponent": (
        "key-dim=2 value-dim=2 num-heads=2 num-left-inputs=1 num-right-inputs=1 time-stride=1 "
        "num-left-inputs-required=0 num-right-inputs-required=0",
        18,
    ),
    "ScaleAndOffsetComponent": ("dim=4 block-dim=2", 4),
    "SigmoidComponent": ("dim=4", 4),
    "SoftmaxComponent": ("dim=4", 4),
    "SpecAugmentTimeMaskComponent": ("dim=4 zeroed-proportion=0.2", 4),
    "StatisticsExtractionComponent": ("input-dim=4 input-period=1 output-period=2", 4),
    "StatisticsPoolingComponent": (
        "input-dim=7 input-period=1 left-context=2 right-context=2 num-log-count-features=1",
        7,
    ),
    "SumBlockComponent": ("input-dim=6 output-dim=3 scale=0.5", 6),
    "SumGroupComponent": ("sizes=2,1,1", 4),
    "TanhComponent": ("dim=4", 4),
    "TdnnComponent": ("input-dim=4 output-dim=3 time-offsets=-1,0,1", 4),
    "TimeHeightConvolutionComponent": (
        "num-filters-in=1 num-filters-out=2 height-in=4 height-out=4 height-offsets=-1,0,1 "
        "time-offsets=-1,0,1 required-time-offsets=0",
        4,
    ),
}
"""Component type -> (the rest of its config line, its input dimension)."""

QUANTIZED = {
    f"Quantized{kind}": kind
    for kind in (
        "AffineComponent", "ConvolutionComponent", "FixedAffineComponent", "LinearComponent",
        "NaturalGradientAffineComponent", "TdnnComponent", "TimeHeightConvolutionComponent",
    )
}  # fmt: skip
"""Type with integer weights -> type with float weights."""


def network_config(kind: str) -> str:
    """A network with one component between its input and its output."""
    config, dim = ZOO[kind]
    return (
        f"input-node name=input dim={dim}\n"
        f"component name=c type={kind} {config}\n"
        "component-node name=c component=c input=input\n"
        "output-node name=output input=c\n"
    )


def model_of(kind: str) -> Nnet:
    """The network of `network_config`, its parameters from a fixed seed."""
    tensor.random.seed(1)
    return Nnet.from_config(parse_config_lines(network_config(kind), f"{kind}.config"))


def quantized_model_of(kind: str, bits: int = 8) -> Nnet:
    """The network of a float type with integer weights, for a type in QUANTIZED."""
    nnet = model_of(QUANTIZED[kind])
    quantize(nnet, ["c"], bits, {})
    return nnet
