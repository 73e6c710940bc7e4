"""Random networks in which any component type may follow any other, and requests to them."""

import random
from collections.abc import Iterator

import numpy as np

from nnet3tools.errors import RequestError
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.program.computation import Computation
from support.component_zoo import ZOO
from support.random_networks import parse

TRUE_DERIVATIVES = {
    "ClipGradientComponent": "dim=4 clipping-threshold=1e9",
    "BackpropTruncationComponent": "dim=4 clipping-threshold=1e9 zeroing-threshold=1e9",
}
"""Configs with which these give the derivative that they have, instead of a smaller one."""


def zoo_network(seed: int, kinds: list[str]) -> tuple[str, Nnet]:
    """Config and network: components of these types, one after the other, joined at random.

    Before each comes an affine layer that makes its input's dimension, from one or two earlier
    layers of any of the descriptors.
    """
    rng = random.Random(seed)
    lines = ["input-node name=input dim=3"]
    layers = [("input", 3)]
    for i, kind in enumerate(kinds):
        config, dim = ZOO[kind]
        config = TRUE_DERIVATIVES.get(kind, config)
        pools = kind == "StatisticsPoolingComponent"
        dim = 3 if pools else dim
        sources = [_source(rng, *rng.choice(layers[-2:])) for _ in range(rng.choice([1, 1, 2]))]
        total = sum(d for _, d in sources)
        text = sources[0][0] if len(sources) == 1 else f"Append({sources[0][0]}, {sources[1][0]})"
        affine = rng.choice(["Affine", "NaturalGradientAffine", "Linear", "Tdnn"])
        more = " time-offsets=0" if affine == "Tdnn" else ""
        stddev = f"param-stddev={1 / total**0.5:.3f}"
        lines += [
            f"component name=a{i} type={affine}Component input-dim={total} output-dim={dim} "
            f"{stddev}{more}",
            f"component-node name=a{i} component=a{i} input={text}",
            f"component name=c{i} type={kind} {config}",
            f"component-node name=c{i} component=c{i} input={'e' if pools else 'a'}{i}",
        ]
        if pools:  # counts of rows have no derivative, so they must be true ones
            lines += [
                f"component name=e{i} type=StatisticsExtractionComponent input-dim=3 "
                "input-period=1 output-period=1",
                f"component-node name=e{i} component=e{i} input=a{i}",
            ]
        nnet = parse("\n".join([*lines, f"output-node name=output input=c{i}"]), seed)
        layers.append((f"c{i}", nnet.dim(nnet.node_index("output"))))
    lines.append(f"output-node name=output input=c{len(kinds) - 1}")
    return "\n".join(lines), parse("\n".join(lines), seed + 1)


def zoo_requests(training: bool) -> Iterator[ComputationRequest]:
    """Requests one of which every network of the zoo can do; statistics are not for all times."""
    given = make_indexes(np.arange(2)[:, None], np.arange(-14, 15)).reshape(-1, 3)
    for times in ([0, 1, 2, 3], [0, 2], [0]):
        asked = make_indexes(np.arange(2)[:, None], np.array(times)).reshape(-1, 3)
        yield ComputationRequest(
            [IoSpecification("input", given, training)],
            [IoSpecification("output", asked, training)],
            need_model_derivative=training,
            store_component_stats=training,
        )


def zoo_program(nnet: Nnet) -> tuple[Computation, ComputationRequest]:
    """A compiled training program of the network, and what it is for."""
    for request in zoo_requests(training=True):
        try:
            return CachingOptimizingCompiler(nnet).compile(request), request
        except RequestError as error:
            reason = error
    raise reason


def _source(rng: random.Random, name: str, dim: int) -> tuple[str, int]:
    forms = (
        "{0}",
        "{0}",
        "Offset({0}, 1)",
        "Sum({0}, Offset({0}, -1))",
        "Failover(Offset({0}, 90), {0})",
        "Sum({0}, IfDefined(Offset({0}, -2)))",
        "Switch({0}, Offset({0}, -1))",
        "Round({0}, 2)",
        "ReplaceIndex({0}, t, 1)",
        "Sum(Scale(-0.5, {0}), Const(0.25, {1}))",
    )
    return rng.choice(forms).format(name, dim), dim
