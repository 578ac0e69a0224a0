"""YAML as the 1.2 core schema reads it, with the place of every value."""

import math
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from miles_core.errors import RequestError
from miles_core.recipe.yaml_text import Mark, dotted, dump, parse, plain

SCALARS = [
    ("1e-5", 1e-5),
    ("1.0e-05", 1e-5),
    ("-.5", -0.5),
    ("1.", 1.0),
    ("+3", 3),
    ("012", 12),
    ("0o17", 15),
    ("0x1F", 31),
    ("true", True),
    ("False", False),
    ("~", None),
    ("null", None),
    ("", None),
    (".inf", math.inf),
    ("-.Inf", -math.inf),
    ("yes", "yes"),
    ("on", "on"),
    ("off", "off"),
    ("1_000", "1_000"),
    ("1:30", "1:30"),
    ("2024-01-01", "2024-01-01"),
    ("'1'", "1"),
    ("!!str 1", "1"),
    ("!!float 1", 1.0),
]


@pytest.mark.parametrize(("text", "value"), SCALARS)
def test_scalars_are_those_of_yaml_1_2(text: str, value: Any) -> None:
    found = parse(f"key: {text}", "f")[0]["key"]
    assert found == value and type(found) is type(value)


def test_a_number_that_is_none_stays_one() -> None:
    assert math.isnan(parse("key: .nan", "f")[0]["key"])


def test_keys_are_text_as_written() -> None:
    assert parse("on: 1\n2: {true: 3}", "f")[0] == {"on": 1, "2": {"true": 3}}


def test_every_value_has_its_mark() -> None:
    _, marks = parse("a: 1\nevaluate:\n  - {use: x}\n  - use: y\n    every: 3\n", "f")
    assert {dotted(parts): mark for parts, mark in marks.items()} == {
        "": Mark(1, 1),
        "a": Mark(1, 1),
        "evaluate": Mark(2, 1),
        "evaluate[0]": Mark(3, 5),
        "evaluate[0].use": Mark(3, 6),
        "evaluate[1]": Mark(4, 5),
        "evaluate[1].use": Mark(4, 5),
        "evaluate[1].every": Mark(5, 5),
    }


def test_an_alias_repeats_its_value() -> None:
    assert parse("a: &x {b: 1}\nc: *x", "f")[0] == {"a": {"b": 1}, "c": {"b": 1}}


FAULTS = [
    ("a: 1\nb: [1, 2\nc: 3", "f:3:2", "    c: 3\n     ^"),
    ("a: 1\nb: 2\na: 3", "f:3:1", "the key 'a' stands here again, first in line 1"),
    ("a: b: c", "f:1:5", "mapping values are not allowed here"),
    ("a:\n\t- 1", "f:2:1", "indent with spaces"),
    ("a: &x [*x]", "f:1:4", "endless"),
    ("a: !!python/object:os.system x", "f:1:4", "not allowed"),
    ("a: !!int x", "f:1:4", "tagged int"),
    ("? [1]\n: 2", "f:1:3", "a key is a list or a mapping"),
    ("a: 1\n---\nb: 2", "f:2:1", "single document"),
    ("a: x\x01", "f:1:5", "U+0001"),
    ("a: " + "9" * 1000, "f:1:4", "1000 digits"),
]


@pytest.mark.parametrize(("text", "where", "says"), FAULTS)
def test_a_fault_has_file_line_column_and_the_line(text: str, where: str, says: str) -> None:
    with pytest.raises(RequestError) as error:
        parse(text, "f")
    problem = error.value.problems[0]
    assert problem.where == where and says in str(error.value) and problem.mend


def test_a_short_text_that_means_a_billion_values_is_refused() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(RequestError, match="endless"):
        parse("\n".join(levels), "f")


def test_endless_nesting_is_refused() -> None:
    with pytest.raises(RequestError, match="nested too deeply"):
        parse("[" * 1500 + "]" * 1500, "f")


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(string.printable, max_size=12)
)
keys = st.text(string.ascii_letters + string.digits + "-_.: #", min_size=1, max_size=8)
data = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4))


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(keys, data, max_size=5))
def test_what_is_dumped_is_read_back(value: dict[str, Any]) -> None:
    found, marks = parse(dump(value), "f")
    assert (found or {}) == value
    assert not value or all(mark.line >= 1 and mark.column >= 1 for mark in marks.values())


def test_python_values_become_json_data() -> None:
    from pathlib import Path

    assert plain({"a": (1, Path("x")), "b": {"c": [None, True]}}) == {"a": [1, "x"], "b": {"c": [None, True]}}
    with pytest.raises(RequestError, match=r"a\.b\[1\] is a object"):
        plain({"a": {"b": [1, object()]}})
