"""The checks of a family fail where a renderer is wrong, each by its own name."""

from __future__ import annotations

import random

import numpy as np
import pytest

from miles_core import Parsed
from miles_core.testing import CharRenderer
from miles_core.testing.families.conversations import conversations
from miles_core.testing.families.offline import check_offline
from miles_core.testing.families.programs import Bank, Harness


class Templated(CharRenderer):
    """With a template of its own, which is right."""

    def template_tokens(self, messages, *, tools=(), generation=True):
        return CharRenderer().render(messages, tools=tools, generation=generation)


class Forgets(Templated):
    def bridge(self, tokens, messages, *, tools=()):
        return super().bridge(tokens, messages[:-1], tools=tools)


class Scribbles(Templated):
    def bridge(self, tokens, messages, *, tools=()):
        tokens[-1:] = 7
        return super().bridge(tokens, messages, tools=tools)


class Retokenizes(Templated):
    def render(self, messages, *, tools=(), generation=True):
        made = super().render(messages, tools=tools, generation=generation)
        return np.append(made, made[:1]) if len(messages) > 2 else made


class OwnWay(Templated):
    def template_tokens(self, messages, *, tools=(), generation=True):
        return np.append(7, super().template_tokens(messages, tools=tools)).astype(np.int32)


class Mumbles(Templated):
    def parse(self, tokens, *, tools=()):
        parsed = super().parse(tokens, tools=tools)
        return Parsed({**parsed.message, "content": parsed.message["content"][:1]}, parsed.complete)


class Chokes(Templated):
    def parse(self, tokens, *, tools=()):
        if not np.isin(tokens, self.stop_tokens).any():
            raise RuntimeError("no end")
        return super().parse(tokens, tools=tools)


def test_a_sound_renderer_passes_everything():
    tallies = check_offline(Templated(), 60)
    assert {name: tally.first for name, tally in tallies.items() if tally.failed} == {}
    assert all(tally.passed for tally in tallies.values())


@pytest.mark.parametrize(
    ("wrong", "check"),
    [
        (Forgets, "append-only"),
        (Scribbles, "append-only"),
        (Retokenizes, "whole"),
        (OwnWay, "parity"),
        (Mumbles, "read-back"),
        (Chokes, "any-tokens"),
    ],
)
def test_a_wrong_one_fails_by_name(wrong, check):
    tally = check_offline(wrong(), 60)[check]
    assert tally.failed
    assert tally.first


def test_without_a_template_parity_says_nothing():
    tally = check_offline(CharRenderer(), 30)["parity"]
    assert (tally.passed, tally.failed) == (0, 0)


def test_conversations_have_everything_and_are_the_same_each_time():
    made = list(conversations(200))
    assert made == list(conversations(200))
    about = {word for said in made for word in said.about}
    assert about == {"tools", "system", "calls", "parallel calls", "reasoning", "empty"}
    assert all(said.messages[-1]["role"] != "assistant" for said in made)


def test_programs_find_a_core_that_would_learn_something_else(monkeypatch):
    """The harness is no yes-man: sequences with one token changed are found."""
    from miles_core.testing.families import programs

    def play(seed):
        Harness(CharRenderer(), Bank.of(CharRenderer()), random.Random(seed), linear=True, tools=()).play(20)

    play(1)
    sound = programs.sequences

    def changed(leaves):
        made = sound(leaves)
        for sequence in made:
            sequence.tokens[-2:] += 1
        return made

    monkeypatch.setattr(programs, "sequences", changed)
    with pytest.raises(AssertionError, match="other tokens"):
        play(1)


@pytest.mark.parametrize("linear", [True, False])
def test_programs_over_characters(linear):
    bank = Bank.of(CharRenderer())
    turns = 0
    for seed in range(60):
        harness = Harness(CharRenderer(), bank, random.Random(seed), linear=linear, tools=())
        harness.play(harness.rng.randint(1, 40))
        turns += harness.turns
    assert turns > 500
