"""Broken options and summaries: each check catches what it is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_serializer, field_validator
from trying import path_of, try_check

from miles_core.contracts.options import NoOptions, Options
from miles_core.testing.kit.check import CheckResult


class Good(Options):
    """Good options."""

    weight: float = Field(default=1.0, ge=0, description="how much")
    word: str = Field(default="a", description="which")

    def card(self):
        return {"weight": str(self.weight)}

    def check(self, facts):
        if facts.group_size > 100:
            yield "too many"


class NoSubclass(BaseModel):
    weight: float = 1.0


class Needs(Options):
    path: str = Field(description="where")


class Lenient(Options):
    model_config = ConfigDict(extra="ignore")
    weight: float = Field(default=1.0, description="how much")


class Lossy(Options):
    word: str = Field(default="a", description="which")

    @field_serializer("word")
    def _shout(self, word):
        return word.upper()


class Crashing(Options):
    word: str = Field(default="a", description="which")

    @field_validator("word")
    @classmethod
    def _first(cls, word):
        return {"a": "a"}[word]


class Anything(Options):
    word: Any = Field(default="a", description="which")


class NoSchema(Options):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    word: Callable[[], int] = Field(default=int, description="which")


class CardOfNumbers(Good):
    def card(self):
        return {"weight": self.weight}


class CheckRaises(Good):
    def check(self, facts):
        return [f"context is {facts.model.context}"]


class CheckIsText(Good):
    def check(self, facts):
        return "never"


class Undescribed(Options):
    class Inner(BaseModel):
        deep: int = 1

    inner: Inner = Field(default=Inner(), description="more")


def build(options, context):
    return object()


BROKEN = [
    ("options-model", NoSubclass),
    ("options-model", Needs),
    ("unknown-options-refused", Lenient),
    ("options-round-trip", Lossy),
    ("wrong-options-refused", Crashing),
    ("wrong-options-refused", Anything),
    ("json-schema", NoSchema),
    ("options-speak", CardOfNumbers),
    ("options-speak", CheckRaises),
    ("options-speak", CheckIsText),
    ("options-described", Undescribed),
]


@pytest.mark.parametrize(("name", "options"), BROKEN)
def test_broken_options_are_caught(name, options):
    finding = try_check(f"component/{name}", build, kind="reward", options=options)
    assert finding.result is CheckResult.FAILED, finding
    assert finding.mend


@pytest.mark.parametrize("name", sorted({name for name, _ in BROKEN}))
def test_good_options_pass(name):
    assert try_check(f"component/{name}", build, kind="reward", options=Good).result is CheckResult.PASSED


def test_options_that_are_not_there_are_caught():
    finding = try_check("component/options-model", build, kind="reward", options="miles_core.nowhere:Options")
    assert finding.result is CheckResult.FAILED
    assert "miles_core.nowhere" in finding.detail


def test_who_has_no_options_cannot_be_given_wrong_ones():
    finding = try_check("component/wrong-options-refused", build, kind="reward", options=NoOptions)
    assert finding.result is CheckResult.INAPPLICABLE


@pytest.mark.parametrize("summary", ["", "two\nlines", "long " * 40])
def test_a_summary_is_one_line(summary):
    finding = try_check("component/summary", path_of(build), kind="reward", summary=summary)
    assert finding.result is CheckResult.FAILED
    assert try_check("component/summary", path_of(build), kind="reward").result is CheckResult.PASSED
