"""Random conversations with tools and reasoning: what would be trained on is what the engine returned."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from programs import STEPS
from tool_programs import ToolBranches, ToolPlayer

TOOL_STEPS = (*STEPS, "extend", "extend", "extend", "other_tools", "other_arguments")
TURNS = 600


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(TOOL_STEPS), max_size=25), st.integers(0, 2**32))
def test_any_program_with_tools(steps, seed):
    ToolPlayer(random.Random(seed)).play(steps)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 25), st.integers(0, 2**32))
def test_any_tree_with_tools(steps, seed):
    ToolBranches(random.Random(seed)).play(steps)


def test_thousands_of_turns_with_tools_without_a_difference():
    for kind in (ToolPlayer, ToolBranches):
        turns, called, seed = 0, 0, 0
        while turns < TURNS:
            seed += 1
            player = kind(random.Random(seed))
            length = player.rng.randint(1, 50)
            player.play(length if kind is ToolBranches else [player.rng.choice(TOOL_STEPS) for _ in range(length)])
            turns += player.turns
            called += sum("tool_calls" in node.reply for node in player.conversation.tree.nodes)
        assert called > turns / 5


def test_ids_are_a_function_of_the_conversation():
    first, second = ToolPlayer(random.Random(5)), ToolPlayer(random.Random(5))
    for player in (first, second):
        player.play(["extend"] * 30)
    assert first.ids == second.ids and len(first.ids) > 5
