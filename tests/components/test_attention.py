"""RestrictedAttentionComponent against attention row by row; missing context; statistics."""

import numpy as np
import pytest

from nnet3tools.errors import RequestError
from support.harness import check_component, forward, make
from support.time_aware import Ordered, check_dependencies, grid, inputs_for

CONFIGS = {
    "one head": "key-dim=3 value-dim=4 num-left-inputs=2 num-right-inputs=1",
    "heads and stride": "key-dim=2 value-dim=3 num-left-inputs=1 num-right-inputs=2 num-heads=3 "
    "time-stride=3 key-scale=0.7",
    "no context out": "key-dim=2 value-dim=3 num-left-inputs=0 num-right-inputs=2 num-heads=2 "
    "output-context=false",
    "optional context": "key-dim=3 value-dim=2 num-left-inputs=3 num-right-inputs=2 num-heads=2 "
    "num-left-inputs-required=1 num-right-inputs-required=0 time-stride=2",
}
OUTPUTS = {
    "every frame": grid(2, range(7)),
    "every third": grid(2, range(0, 10, 3)),
    "one output": grid(2, [4]),
    "a gap": np.concatenate([grid(2, [0, 1, 5]), grid(1, [2])]),
    "images differ in x": grid(1, range(3), x=2),
}


def attention(config: str):
    return make(f"type=RestrictedAttentionComponent {config}")


def attend(component, frames, index):
    """Compute one output row with loops over heads, as a reference."""
    n, t, x = index
    key, value, context = component.key_dim, component.value_dim, component.context_dim
    per_head, zero = 2 * key + value + context, np.zeros(component.input_dim)
    places = range(-component.num_left_inputs, component.num_right_inputs + 1)
    window = [frames.get((n, t + k * component.time_stride, x), zero) for k in places]
    out = []
    for head in range(component.num_heads):
        parts = [row[head * per_head : (head + 1) * per_head] for row in window]
        query = frames[index][head * per_head + key + value : (head + 1) * per_head]
        b = [component.key_scale * query[:key] @ part[:key] for part in parts] + query[key:]
        c = np.exp(b) / np.exp(b).sum()
        out.append(sum(w * part[key : key + value] for w, part in zip(c, parts, strict=True)))
        if component.output_context:
            out.append(c)
    return np.concatenate(out)


@pytest.mark.parametrize("request_name", OUTPUTS)
@pytest.mark.parametrize("name", CONFIGS)
def test_attention_row_by_row(name: str, request_name: str) -> None:
    component, outputs = attention(CONFIGS[name]), OUTPUTS[request_name]
    ordered = Ordered(component, inputs_for(component, outputs), outputs)
    x = ordered.values(np.random.default_rng(2))
    y, _ = forward(component, x.astype(np.float32), ordered.rows)
    frames = ordered.by_index(x)
    ordered.compare(y, lambda index: attend(component, frames, index))


@pytest.mark.parametrize("name", CONFIGS)
def test_derivatives_statistics_and_files(name: str) -> None:
    component, outputs = attention(CONFIGS[name]), OUTPUTS["every third"]
    check_component(component, Ordered(component, inputs_for(component, outputs), outputs).rows)


def test_absent_optional_context_reads_as_zero() -> None:
    component, outputs = attention(CONFIGS["optional context"]), grid(2, range(4, 9))
    inputs = grid(2, range(2, 9))
    ordered = Ordered(component, inputs, outputs)
    x = ordered.values(np.random.default_rng(2))
    y, _ = forward(component, x.astype(np.float32), ordered.rows)
    frames = ordered.by_index(x)
    ordered.compare(y, lambda index: attend(component, frames, index))


def test_statistics_are_sums_of_weights_and_entropies() -> None:
    component, outputs = attention(CONFIGS["heads and stride"]), grid(2, range(0, 12, 3))
    assert "stats-count" not in component.info()
    ordered = Ordered(component, inputs_for(component, outputs), outputs)
    x = ordered.values(np.random.default_rng(2)).astype(np.float32)
    y, memo = forward(component, x, ordered.rows)
    while component.stats_count < 16:  # statistics are stored in two thirds of the calls, at random
        component.store_stats(x, y, memo)
    c = y.astype(np.float64).reshape(len(y), 3, 7)[:, :, 3:]
    np.testing.assert_allclose(component.posterior_stats, 2 * c.sum(axis=0), 1e-5)
    np.testing.assert_allclose(component.entropy_stats, -2 * (c * np.log(c)).sum(axis=(0, 2)), 1e-5)
    assert component.stats_count == 16
    assert component.info().endswith(" stats-count=16")
    other = component.copy()
    other.scale(0.0)
    other.add(0.5, component)
    assert other.stats_count == 8
    fresh = attention(CONFIGS["heads and stride"])
    fresh.add(1.0, component)
    assert fresh.info() == component.info()


def test_dependencies_need_only_the_required_context() -> None:
    component = attention(CONFIGS["optional context"])
    check_dependencies(
        component,
        OUTPUTS["images differ in x"],
        lambda o: [(o[0], o[1] + 2 * k, o[2]) for k in range(-3, 3)],
        lambda o, _, there: {(o[0], o[1] - 2, o[2]), o} <= there,
    )


def test_rows_that_cannot_be_ordered_name_component_and_times() -> None:
    component = attention(CONFIGS["one head"])
    with pytest.raises(RequestError, match=r"RestrictedAttentionComponent cannot .* from -2 to 4"):
        component.reorder_indexes(grid(1, range(4)), grid(1, range(4)))
    with pytest.raises(RequestError, match="found -4 to 4"):
        component.reorder_indexes(grid(1, range(-4, 5)), grid(1, range(4)))
