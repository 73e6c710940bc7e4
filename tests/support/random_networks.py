"""Random networks and requests, by kind and seed, for tests that compare programs."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import RequestError
from nnet3tools.graph.builder import GraphBuilder
from nnet3tools.graph.explain import explain_uncomputable
from nnet3tools.graph.node_rules import NetworkPlan
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.nnet.nnet import Nnet


def parse(text: str, seed: int = 0) -> Nnet:
    """A network from config text, its parameters drawn from this seed."""
    tensor.random.seed(seed)
    return Nnet.from_config(parse_config_lines(text, "test.config"))


@dataclass(frozen=True)
class Case:
    """One network and what is asked of it."""

    kind: str
    seed: int
    config: str
    nnet: Nnet
    request: ComputationRequest

    def __str__(self) -> str:
        return f"{self.kind}, seed {self.seed}"


class Writer:
    """Config text in the making. Layers take and return (descriptor text, dimension)."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.lines, self.count = rng, [], 0
        self.dim = rng.choice([2, 3, 4])
        self.inputs = {"input": rng.choice([2, 3])}
        self.lines.append(f"input-node name=input dim={self.inputs['input']}")
        self.frames: list[tuple[str, int]] = [("input", self.inputs["input"])]
        """What later layers may start from: nodes with a row for every frame."""

    def extra_input(self, name: str, dim: int) -> None:
        self.inputs[name] = dim
        self.lines.append(f"input-node name={name} dim={dim}")

    def name(self, what: str) -> str:
        self.count += 1
        return f"{what}{self.count}"

    def component(self, what: str, kind: str, config: str, source: str, dim: int) -> str:
        """A component with a node of its own; returns its name, and offers it to later layers."""
        name = self.name(what)
        self.declare(name, kind, config)
        self.node(name, name, source)
        self.frames.append((name, dim))
        return name

    def declare(self, name: str, kind: str, config: str) -> None:
        self.lines.append(f"component name={name} type={kind}Component {config}")

    def node(self, name: str, component: str, source: str) -> None:
        self.lines.append(f"component-node name={name} component={component} input={source}")

    def range_node(self, name: str, source: str, offset: int, dim: int) -> None:
        self.lines.append(
            f"dim-range-node name={name} input-node={source} dim-offset={offset} dim={dim}"
        )

    def pick(self) -> tuple[str, int]:
        """A node to start from, most often the last."""
        return self.frames[-1] if self.rng.random() < 0.7 else self.rng.choice(self.frames)

    def affine(self, source: str, dim: int, out: int | None = None) -> tuple[str, int]:
        out = out or self.dim
        kind = self.rng.choice(["Affine", "NaturalGradientAffine", "Linear"])
        bias = "" if kind == "Linear" else " bias-stddev=0.5"
        config = f"input-dim={dim} output-dim={out} param-stddev=0.5{bias}"
        return self.component("affine", kind, config, source, out), out

    def nonlinearity(self, source: str, dim: int) -> tuple[str, int]:
        kind, config = self.rng.choice(NONLINEARITIES)
        return self.component(kind.lower(), kind, config.format(dim=dim), source, dim), dim


NONLINEARITIES = (
    ("RectifiedLinear", "dim={dim}"),
    ("RectifiedLinear", "dim={dim}"),
    ("Tanh", "dim={dim}"),
    ("Sigmoid", "dim={dim}"),
    ("Softmax", "dim={dim}"),
    ("LogSoftmax", "dim={dim}"),
    ("Normalize", "dim={dim}"),
    ("BatchNorm", "dim={dim}"),
    ("BatchNorm", "dim={dim}"),
    ("NoOp", "dim={dim}"),
    ("PerElementScale", "dim={dim} param-stddev=0.4"),
    ("ScaleAndOffset", "dim={dim}"),
    ("ClipGradient", "dim={dim} clipping-threshold=0.3"),
)


# -- kinds of layers


def feed_forward(w: Writer) -> None:
    """Affine and nonlinear layers, some with a bypass."""
    for _ in range(w.rng.randint(1, 3)):
        source, dim = w.pick()
        name, dim = w.affine(source, dim)
        for _ in range(w.rng.randint(0, 2)):
            previous = name
            name, dim = w.nonlinearity(name, dim)
            if w.rng.random() < 0.3:
                scaled = f"Scale({w.rng.choice(['0.66', '-1'])}, {previous})"
                name, dim = w.nonlinearity(f"Sum({scaled}, {name})", dim)


def splices(w: Writer) -> None:
    """TDNN layers from Append and Offset."""
    for _ in range(w.rng.randint(1, 3)):
        source, dim = w.pick()
        offsets = sorted(w.rng.sample(range(-3, 4), w.rng.randint(2, 3)))
        parts = [f"Offset({source}, {t})" if t else source for t in offsets]
        total = dim * len(parts)
        if w.rng.random() < 0.3:
            other, other_dim = w.rng.choice(w.frames)
            parts.append(f"Offset({other}, {w.rng.randint(-2, 2)})")
            total += other_dim
        name, dim = w.affine(f"Append({', '.join(parts)})", total)
        w.nonlinearity(name, dim)


def descriptors(w: Writer) -> None:
    """Every kind of descriptor, over nodes of one dimension."""
    names = [w.affine(*w.pick(), out=w.dim)[0] for _ in range(w.rng.randint(1, 3))]
    for _ in range(w.rng.randint(1, 4)):
        parts = [_part(w, names, 2) for _ in range(w.rng.choice([1, 1, 2, 3]))]
        source = parts[0] if len(parts) == 1 else f"Append({', '.join(parts)})"
        if len(parts) == 1 and w.rng.random() < 0.5:
            names.append(w.nonlinearity(source, w.dim)[0])
        else:
            names.append(w.affine(source, w.dim * len(parts), w.dim)[0])


def _leaf(w: Writer, names: list[str]) -> str:
    rng, name = w.rng, w.rng.choice(names)
    kind = rng.randrange(7)
    if kind < 2:
        return name
    if kind == 2:
        return f"Offset({name}, {rng.randint(-2, 2)})"
    if kind == 3:
        return f"Round({name}, {rng.randint(2, 3)})"
    if kind == 4:
        return f"ReplaceIndex({name}, t, {rng.randint(0, 1)})"
    if kind == 5:
        return f"Switch({name}, Offset({rng.choice(names)}, 1))"
    return f"Scale({rng.choice(['0.5', '-2'])}, {name})"


def _part(w: Writer, names: list[str], depth: int) -> str:
    rng, kind = w.rng, w.rng.randrange(6)
    if kind < 2 or depth == 0:
        return _leaf(w, names)
    if kind == 2:
        return f"Sum({_part(w, names, depth - 1)}, {_part(w, names, depth - 1)})"
    if kind == 3:
        return f"Failover(Offset({rng.choice(names)}, {rng.choice([-9, -4, 4, 9])}), {names[0]})"
    if kind == 4:
        return f"Sum({names[-1]}, IfDefined(Offset({rng.choice(names)}, {rng.choice([-6, 5])})))"
    return f"Sum({_leaf(w, names)}, Const({rng.choice(['1.0', '-0.5'])}, {w.dim}))"


def lstm(w: Writer) -> None:
    """An LSTM from simple components (one with a projection), or Kaldi's fast one."""
    (_fast_lstm if w.rng.random() < 0.4 else _plain_lstm)(w)


def _plain_lstm(w: Writer) -> None:
    delay = w.rng.choice([-1, -2, -3, 1])
    source, dim = w.pick()
    cell, p = w.dim, w.name("lstm")
    past = f"IfDefined(Offset({p}.m, {delay}))"
    for gate, kind in (("i", "Sigmoid"), ("f", "Sigmoid"), ("g", "Tanh"), ("o", "Sigmoid")):
        config = f"input-dim={dim + cell} output-dim={cell} param-stddev=0.5 bias-stddev=0.3"
        w.declare(f"{p}.W{gate}", "Affine", config)
        w.node(f"{p}.W{gate}", f"{p}.W{gate}", f"Append({source}, {past})")
        w.declare(f"{p}.{gate}", kind, f"dim={cell}")
        w.node(f"{p}.{gate}", f"{p}.{gate}", f"{p}.W{gate}")
    for product in ("c1", "c2", "m"):
        w.declare(f"{p}.{product}", "ElementwiseProduct", f"input-dim={2 * cell} output-dim={cell}")
    w.declare(f"{p}.h", "Tanh", f"dim={cell}")
    w.declare(f"{p}.c", "NoOp", f"dim={cell}")
    w.node(f"{p}.c1", f"{p}.c1", f"Append({p}.f, IfDefined(Offset({p}.c, {delay})))")
    w.node(f"{p}.c2", f"{p}.c2", f"Append({p}.i, {p}.g)")
    w.node(f"{p}.c", f"{p}.c", f"Sum({p}.c1, {p}.c2)")
    w.node(f"{p}.h", f"{p}.h", f"{p}.c")
    w.node(f"{p}.m", f"{p}.m", f"Append({p}.o, {p}.h)")
    w.frames.append((f"{p}.m", cell))


def _fast_lstm(w: Writer) -> None:
    delay = w.rng.choice([-1, -3])
    source, dim = w.pick()
    cell, p = w.dim, w.name("lstm")
    config = f"input-dim={dim + cell} output-dim={4 * cell} param-stddev=0.5 bias-stddev=0.3"
    w.declare(f"{p}.W", "NaturalGradientAffine", config)
    w.node(f"{p}.W", f"{p}.W", f"Append({source}, IfDefined(Offset({p}.r, {delay})))")
    w.declare(f"{p}.lstm", "LstmNonlinearity", f"cell-dim={cell}")
    w.node(f"{p}.lstm", f"{p}.lstm", f"Append({p}.W, IfDefined(Offset({p}.ct, {delay})))")
    w.range_node(f"{p}.c", f"{p}.lstm", 0, cell)
    w.range_node(f"{p}.m", f"{p}.lstm", cell, cell)
    truncation = "clipping-threshold=1 zeroing-threshold=15 zeroing-interval=2"
    config = f"dim={2 * cell} {truncation} recurrence-interval={abs(delay)} scale=0.9"
    w.declare(f"{p}.trunc", "BackpropTruncation", config)
    w.node(f"{p}.trunc", f"{p}.trunc", f"Append({p}.c, {p}.m)")
    w.range_node(f"{p}.ct", f"{p}.trunc", 0, cell)
    w.range_node(f"{p}.r", f"{p}.trunc", cell, cell)
    w.frames.append((f"{p}.m", cell))


def gru(w: Writer) -> None:
    """A gated recurrence with 1 - z from Scale and Const."""
    delay = w.rng.choice([-1, -2, 2])
    source, dim = w.pick()
    size, p = w.dim, w.name("gru")
    past = f"IfDefined(Offset({p}.y, {delay}))"
    for gate in "zr":
        config = f"input-dim={dim + size} output-dim={size} param-stddev=0.5 bias-stddev=0.3"
        w.declare(f"{p}.W{gate}", "Affine", config)
        w.node(f"{p}.W{gate}", f"{p}.W{gate}", f"Append({source}, {past})")
        w.declare(f"{p}.{gate}", "Sigmoid", f"dim={size}")
        w.node(f"{p}.{gate}", f"{p}.{gate}", f"{p}.W{gate}")
    for product in ("rs", "y1", "y2"):
        w.declare(f"{p}.{product}", "ElementwiseProduct", f"input-dim={2 * size} output-dim={size}")
    w.node(f"{p}.rs", f"{p}.rs", f"Append({p}.r, {past})")
    w.declare(f"{p}.Wh", "Affine", f"input-dim={dim + size} output-dim={size} param-stddev=0.5")
    w.node(f"{p}.Wh", f"{p}.Wh", f"Append({source}, {p}.rs)")
    w.declare(f"{p}.h", "Tanh", f"dim={size}")
    w.node(f"{p}.h", f"{p}.h", f"{p}.Wh")
    w.node(f"{p}.y1", f"{p}.y1", f"Append({p}.h, Sum(Scale(-1.0, {p}.z), Const(1.0, {size})))")
    w.node(f"{p}.y2", f"{p}.y2", f"Append({past}, {p}.z)")
    w.declare(f"{p}.y", "NoOp", f"dim={size}")
    w.node(f"{p}.y", f"{p}.y", f"Sum({p}.y1, {p}.y2)")
    w.frames.append((f"{p}.y", size))


def tdnn(w: Writer) -> None:
    """TdnnComponent layers with bypass, as in factorized TDNNs."""
    for _ in range(w.rng.randint(1, 2)):
        source, dim = w.pick()
        name = source
        for half in range(2):
            offsets = w.rng.choice(["-1,0", "0,1", "-3,0,3", "-2,1"])
            config = f"input-dim={dim} output-dim={w.dim} time-offsets={offsets} param-stddev=0.5"
            config += " use-bias=false" if half == 0 else ""
            name = w.component("tdnn", "Tdnn", config, name, w.dim)
            dim = w.dim
        name, dim = w.nonlinearity(name, dim)
        if w.rng.random() < 0.5 and (same := [n for n, d in w.frames if d == dim]):
            w.component("bypass", "NoOp", f"dim={dim}", f"Sum(Scale(0.66, {same[0]}), {name})", dim)


def convolution(w: Writer) -> None:
    """Time-height convolutions."""
    source, dim = w.pick()
    height, filters = w.rng.choice([3, 4]), w.rng.choice([1, 2])
    name, _ = w.affine(source, dim, height)
    filters_in = 1
    for _ in range(w.rng.randint(1, 2)):
        config = (
            f"num-filters-in={filters_in} num-filters-out={filters} height-in={height} "
            f"height-out={height} height-offsets=-1,0,1 param-stddev=0.4 "
            f"time-offsets={w.rng.choice(['-1,0,1', '0', '-2,0'])} required-time-offsets=0"
        )
        name = w.component("conv", "TimeHeightConvolution", config, name, filters * height)
        filters_in = filters
        name, _ = w.nonlinearity(name, filters * height)


def statistics(w: Writer) -> None:
    """Mean and standard deviation over a window, beside the frames themselves."""
    source, dim = w.affine(*w.pick())
    period, window = w.rng.choice([1, 2]), w.rng.choice([2, 4])
    config = f"input-dim={dim} input-period=1 output-period={period} include-variance=true"
    p = w.name("stats")
    w.declare(f"{p}.extract", "StatisticsExtraction", config)
    w.node(f"{p}.extract", f"{p}.extract", source)
    config = (
        f"input-dim={1 + 2 * dim} input-period={period} left-context={window} "
        f"right-context={window} num-log-count-features={w.rng.choice([0, 1])} output-stddevs=true"
    )
    extra = int(config.split("features=")[1][0])
    w.declare(f"{p}.pool", "StatisticsPooling", config)
    w.node(f"{p}.pool", f"{p}.pool", f"{p}.extract")
    total = extra + 2 * dim
    w.affine(f"Append({source}, Round({p}.pool, {period}))", dim + total)


def attention(w: Writer) -> None:
    """Restricted self-attention."""
    key, value, left, right = 2, w.dim, 2, 1
    context = left + 1 + right
    size = key + value + key + context
    name, _ = w.affine(*w.pick(), out=size)
    config = (
        f"key-dim={key} value-dim={value} num-left-inputs={left} num-right-inputs={right} "
        "num-left-inputs-required=1 num-right-inputs-required=0 time-stride=1"
    )
    name = w.component("att", "RestrictedAttention", config, name, value + context)
    w.nonlinearity(name, value + context)


def pnorm(w: Writer) -> None:
    """Components whose output is smaller than their input, and ranges of columns."""
    name, dim = w.affine(*w.pick(), out=2 * w.dim)
    kind = w.rng.choice(["Pnorm", "ElementwiseProduct", "SumBlock"])
    scale = "scale=0.5" if kind == "SumBlock" else ""
    config = f"input-dim={dim} output-dim={w.dim} {scale}"
    w.component("group", kind, config, name, w.dim)
    part = w.name("range")
    w.range_node(part, name, w.rng.randint(0, w.dim), w.dim)
    w.frames.append((part, w.dim))


LAYERS: dict[str, Callable[[Writer], None]] = {
    "feed forward": feed_forward,
    "splices": splices,
    "descriptors": descriptors,
    "lstm": lstm,
    "gru": gru,
    "tdnn": tdnn,
    "convolution": convolution,
    "statistics": statistics,
    "attention": attention,
    "groups": pnorm,
}
KINDS = (*LAYERS, "several inputs and outputs", "mixture")


def random_network(kind: str, rng: random.Random) -> tuple[str, dict[str, int]]:
    """(config text, dimensions of its inputs) of a network of one kind."""
    w = Writer(rng)
    if kind == "several inputs and outputs":
        w.extra_input("side", 2)
        w.frames.append(("side", 2))
        w.extra_input("ivector", 2)
        w.affine("Append(input, ReplaceIndex(ivector, t, 0))", w.inputs["input"] + 2)
        for _ in range(2):
            LAYERS[rng.choice(["feed forward", "splices", "descriptors"])](w)
        name, dim = rng.choice(w.frames[2:])
        _output(w, "side-output", rng.choice([name, f"Offset({name}, 1)"]), dim)
    elif kind == "mixture":
        for _ in range(rng.randint(2, 3)):
            LAYERS[rng.choice(list(LAYERS))](w)
    else:
        LAYERS[kind](w)
    name, dim = w.frames[-1]
    _output(w, "output", *(w.affine(name, dim) if rng.random() < 0.5 else (name, dim)))
    rng.shuffle(w.lines) if rng.random() < 0.2 else None
    return "\n".join(w.lines), w.inputs


def _output(w: Writer, name: str, source: str, dim: int) -> None:
    objective = w.rng.choice(["linear", "quadratic"])
    w.lines.append(f"output-node name={name} input={source} objective={objective}")


# -- requests


def random_request(
    rng: random.Random, nnet: Nnet, *, regular: bool, num_sequences: int, context: int
) -> ComputationRequest:
    """Rows of all inputs and outputs; irregular: with gaps, in any order, other n other t."""
    num_frames = rng.randint(1, 4)
    t_major = rng.random() < 0.5

    def spec(name: str, begin: int, end: int, keep: float) -> IoSpecification:
        n, t = np.arange(num_sequences), np.arange(begin, end)
        rows = make_indexes(n[:, None], t) if t_major else make_indexes(n, t[:, None])
        rows = rows.reshape(-1, 3)
        if not regular:
            order = np.arange(len(rows))
            if rng.random() < 0.5:
                order = np.array(rng.sample(range(len(rows)), len(rows)))
            kept = np.array([rng.random() < keep for _ in order])
            rows = rows[order[kept] if kept.any() else order[:1]]
        return IoSpecification(name, np.ascontiguousarray(rows))

    keep = 1.0 if regular else rng.choice([1.0, 0.97, 0.9])
    request = ComputationRequest()
    for node in nnet.input_nodes():
        name = nnet.node_names[node]
        if name == "ivector":
            request.inputs.append(spec(name, 0, 1, 1.0))
        else:
            request.inputs.append(spec(name, -context, num_frames + context, keep))
    for node in nnet.output_nodes():
        name = nnet.node_names[node]
        request.outputs.append(spec(name, 0, num_frames, 1.0 if regular else 0.7))
    _want_derivatives(rng, request)
    return request


def _want_derivatives(rng: random.Random, request: ComputationRequest) -> None:
    kind = rng.random()
    if kind < 0.12:
        return
    for io in request.outputs:
        io.has_deriv = rng.random() < 0.8
    request.outputs[-1].has_deriv = True
    request.need_model_derivative = rng.random() < 0.8
    request.store_component_stats = rng.random() < 0.5
    for io in request.inputs:
        io.has_deriv = rng.random() < 0.5
    if not request.needs_derivatives:
        request.inputs[0].has_deriv = True


def random_case(seed: int, kind: str | None = None, regular: bool | None = None) -> Case:
    """The network and request of a seed. Requests that cannot be computed are drawn again."""
    kind = kind or KINDS[seed % len(KINDS)]
    rng = random.Random(f"{kind} {seed}")
    if regular is None:
        regular = rng.random() < 0.6
    for attempt in range(50):
        config, _ = random_network(kind, rng)
        nnet = parse(config, seed + 1)
        sequences = rng.randint(3, 4) if regular and rng.random() < 0.7 else rng.randint(1, 4)
        for context in (2, 5, 10, 20):
            options = {"regular": regular, "num_sequences": sequences, "context": context}
            request = random_request(rng, nnet, **options)
            if _computable(nnet, request):
                return Case(kind, seed, config, nnet, request)
        regular = regular or attempt > 20
    raise AssertionError(f"no computable request found for {kind}, seed {seed}")


def _computable(nnet: Nnet, request: ComputationRequest) -> bool:
    """Whether the network can do this."""
    try:
        builder = GraphBuilder(NetworkPlan(nnet))
        builder.compute(request)
        return not explain_uncomputable(builder, request)
    except RequestError:
        return False
