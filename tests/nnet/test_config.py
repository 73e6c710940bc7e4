"""Config lines: Kaldi's grammar, types of values, unused keys, positions in error messages."""

import numpy as np
import pytest

from nnet3tools.errors import ConfigError
from nnet3tools.nnet.config import (
    ConfigLine,
    name_matches_pattern,
    parse_config_lines,
    parse_int,
)


def test_value_with_spaces_ends_before_next_key() -> None:
    line = ConfigLine("component-node name=a input=Append(b, Offset(c, -1)) component=x")
    assert line.first_token == "component-node"
    assert line.get_string("input") == "Append(b, Offset(c, -1))"
    assert line.get_string("component") == "x"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=b=c", {"a": "b=c"}),
        ("a= b=c", {"a": "", "b": "c"}),
        ("x a='b c=d'  e=\"f\"", {"a": "b c=d", "e": "f"}),
        ("x\ta=1\tb=2", {"a": "1", "b": "2"}),
        ("x a=1 a=2", {"a": "1"}),
        ("x a='1'b=2", {"a": "1", "b": "2"}),
    ],
)
def test_odd_lines_are_read_as_kaldi_reads_them(text: str, values: dict[str, str]) -> None:
    line = ConfigLine(text)
    assert {key: line.get_string(key) for key in line.unused_keys()} == values


@pytest.mark.parametrize("text", ["x y", "x =3", "x a='b", "x a b=c", "~ a=b", ""])
def test_malformed_line_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError):
        ConfigLine(text)


def test_comments_and_blank_lines_are_skipped_but_counted() -> None:
    lines = parse_config_lines("# first\n\n a b=c # d=e\n  \t\nf g=h\r\n", "net.config")
    assert [(line.text, line.line_number) for line in lines] == [("a b=c", 3), ("f g=h", 5)]


def test_typed_values() -> None:
    line = ConfigLine("x i=-3 f=0.1 t=True n=false l=1,2:3 e=1e-3")
    assert line.get_int("i") == -3
    assert line.get_float("f") == np.float32(0.1)
    assert line.get_float("e") == np.float32(1e-3)
    assert line.get_bool("t") is True
    assert line.get_bool("n") is False
    assert line.get_int_list("l") == [1, 2, 3]
    assert line.get_int("absent", 7) == 7
    assert line.get_string("absent", None) is None
    assert not line.unused_keys()


@pytest.mark.parametrize(
    ("getter", "value"),
    [
        ("get_int", "3.0"),
        ("get_int", "3000000000"),
        ("get_int", "9" * 5000),
        ("get_int_list", "1," + "9" * 5000),
        ("get_int", ""),
        ("get_float", "1_0"),
        ("get_float", "abc"),
        ("get_bool", "1"),
        ("get_int_list", "1,x"),
    ],
)
def test_wrong_type_names_file_line_and_key(getter: str, value: str) -> None:
    (line,) = parse_config_lines(f"x some-key={value}", "net.config")
    with pytest.raises(ConfigError, match=r"^net\.config:1: .*'some-key'"):
        getattr(line, getter)("some-key", 1)


def test_missing_required_key_names_the_nearest_unused_one() -> None:
    with pytest.raises(ConfigError, match=r"'input-dim'.*'inputdim'"):
        ConfigLine("x inputdim=3").get_int("input-dim")


def test_unused_keys_are_reported_sorted_with_values() -> None:
    line = ConfigLine("x b=2 a=1 c=3")
    line.get_int("c")
    with pytest.raises(ConfigError, match="'a=1 b=2'"):
        line.check_all_used()


@pytest.mark.parametrize(
    ("name", "pattern", "matches"),
    [
        ("tdnn1.affine", "tdnn*", True),
        ("tdnn1.affine", "tdnn", False),
        ("tdnn1.affine", "*affine", True),
        ("tdnn1.affine", "t*1.a*e", True),
        ("tdnn1-affine", "tdnn1.affine", False),
        ("anything", "*", True),
        ("a[b", "a[b", True),
    ],
)
def test_only_star_is_special_in_patterns(name: str, pattern: str, matches: bool) -> None:
    assert name_matches_pattern(name, pattern) is matches


@pytest.mark.parametrize("sign", ["", "+", "-"])
def test_an_integer_may_have_any_number_of_leading_zeros(sign: str) -> None:
    assert parse_int(f" {sign}{'0' * 5000}7 ") == int(f"{sign}7")
    assert parse_int(f"{sign}{'0' * 5000}") == 0
    assert parse_int(f"{sign}{'9' * 5000}") is None
    assert parse_int("-2147483648") == -(1 << 31)
    assert parse_int("2147483648") is None
