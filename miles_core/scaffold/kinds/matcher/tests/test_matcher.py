"""What is the same message, and what is another one."""

from typing import Any

import pytest
from miles_core import BuildContext

from miles_plugin_xyz.matcher import XyzMatcher
from miles_plugin_xyz.options import XyzOptions


def matches(stored: dict[str, Any], replayed: dict[str, Any], ignore_case: bool = False) -> bool:
    options = XyzOptions(ignore_case=ignore_case)
    matcher = XyzMatcher(options, BuildContext(seed=1, name="matcher"))
    return matcher.matches(stored, replayed)


def said(content: Any, role: str = "assistant", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


@pytest.mark.parametrize(
    ("stored", "replayed"),
    [
        (said("a b"), said("a b")),
        (said("a b"), said(" a\n b ")),
        (said([{"type": "text", "text": "a  b"}]), said([{"type": "text", "text": "a b"}])),
    ],
)
def test_white_space_makes_no_difference(stored: dict[str, Any], replayed: dict[str, Any]) -> None:
    assert matches(stored, replayed)


@pytest.mark.parametrize(
    "replayed", [said("a c"), said("a b", role="user"), said("A b"), said("ab"), said("a b", name="x"), said(None)]
)
def test_everything_else_does(replayed: dict[str, Any]) -> None:
    assert not matches(said("a b"), replayed)


def test_case_can_be_ignored() -> None:
    assert matches(said("a b"), said("A B"), ignore_case=True)
