"""The networks of both models, as text in the xconfig language."""

from __future__ import annotations

from pathlib import Path

from nnet3tools.recipe.speech.sizes import NUM_CEPSTRA, Size


def xconfig(size: Size, num_pdfs: int, is_second: bool, configs: Path) -> str:
    """A TDNN-F; the second model has an output for cross-entropy and, if wanted, SpecAugment.

    A matrix that SpecAugment needs is written to the folder `configs`.
    """
    l2 = size.l2[is_second]
    regularized = f"l2-regularize={l2:g}"
    lines = [f"input dim={NUM_CEPSTRA} name=input"]
    if is_second and size.has_spec_augment:
        lines.append(
            f"idct-layer name=idct input=input dim={NUM_CEPSTRA} cepstral-lifter=22 "
            f"affine-transform-file={configs}/idct.mat"
        )
        lines.append("batchnorm-component name=bands input=idct")
        lines.append("spec-augment-layer name=augmented time-zeroed-proportion=0.2")
    first = f"relu-batchnorm-layer name=tdnn1 input=Append(-1,0,1) {regularized} dim={size.dim}"
    lines.append(first)
    lines += [
        f"tdnnf-layer name=tdnnf{number} {regularized} bypass-scale=0.66 dim={size.dim} "
        f"bottleneck-dim={size.bottleneck_dim} time-stride={stride}"
        for number, stride in enumerate(size.strides, start=2)
    ]
    small = min(size.dim // 2, 256)
    linear = f"linear-component name=prefinal-l {regularized} orthonormal-constraint=-1.0"
    lines.append(f"{linear} dim={small}")
    outputs = [("chain", "output", "include-log-softmax=false")]
    if is_second:
        outputs.append(("xent", "output-xent", "learning-rate-factor=5.0"))
    for name, output, options in outputs:
        lines.append(
            f"prefinal-layer name=prefinal-{name} input=prefinal-l {regularized} "
            f"big-dim={size.dim} small-dim={small}"
        )
        lines.append(
            f"output-layer name={output} input=prefinal-{name} l2-regularize={l2 / 2:g} "
            f"{options} dim={num_pdfs}"
        )
    return "".join(f"{line}\n" for line in lines)
