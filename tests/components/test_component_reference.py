"""The reference of component types: its keys, defaults and properties are those of the code."""

import re

import pytest

from nnet3tools.errors import ConfigError
from nnet3tools.nnet.components.base import Component
from nnet3tools.nnet.components.reference import component_reference, config_keys
from nnet3tools.nnet.components.registry import component_class, component_types
from nnet3tools.nnet.config import ConfigLine
from nnet3tools.nnet.config_reader import make_component
from support.component_zoo import QUANTIZED, ZOO, quantized_model_of


def line_of(name: str, more: str = "") -> ConfigLine:
    return ConfigLine(f"component type={name} {ZOO[name][0]} {more}")


@pytest.mark.parametrize("name", ZOO)
def test_every_key_that_a_component_reads_is_listed(name: str) -> None:
    line = line_of(name)
    make_component(line)
    cls = component_class(name)
    refused = {word[1:] for word in cls.KEYS.split() if word.startswith("-")}
    listed = {"type", *config_keys(cls), *refused}
    assert set(line.known_keys) <= listed


@pytest.mark.parametrize("name", ZOO)
def test_every_listed_key_is_read_and_its_default_accepted(name: str) -> None:
    """Keys that may be absent, such as matrix=, are alternatives to others: they are not given."""
    for key, word in config_keys(component_class(name)).items():
        if f"{key}=" in ZOO[name][0] or word.startswith("[") or "threshold=" in word:
            continue
        default = word.partition("=")[2]
        assert default, f"{name} of the zoo lacks the required key {key}"
        value = default if re.fullmatch(r"-?\d[\d.e+-]*|true|false", default) else "1"
        value = "2" if key == "block-dim" else value
        line = line_of(name, f"{key}={value}")
        make_component(line)
        assert not line.unused_keys(), key


@pytest.mark.parametrize("name", component_types())
def test_the_listed_properties_are_those_of_instances(name: str) -> None:
    cls = component_class(name)
    if cls.properties is Component.properties:
        quantized = name in QUANTIZED
        made = (
            quantized_model_of(name).components[0] if quantized else make_component(line_of(name))
        )
        assert made.properties == cls.FLAGS
    else:
        assert "others by configuration" in component_reference(cls)


@pytest.mark.parametrize("name", component_types())
def test_every_type_has_purpose_and_formula(name: str) -> None:
    _, purpose, formula = component_reference(component_class(name)).split("\n\n")
    assert purpose.endswith(".")
    assert " = " in formula.partition("\n")[0]


def test_quantized_types_have_no_keys() -> None:
    for name in QUANTIZED:
        assert "- keys: none\n" in component_reference(component_class(name))


def test_an_unknown_key_names_the_known_ones_and_the_nearest() -> None:
    line = ConfigLine("component type=TanhComponent dim=4 self-repair-scal=1", "x.config", 3)
    make_component(line)
    with pytest.raises(ConfigError) as error:
        line.check_all_used()
    message = str(error.value)
    assert "x.config" in message
    assert "'self-repair-scal=1' (did you mean 'self-repair-scale'?); known: " in message
    assert "block-dim" in message
