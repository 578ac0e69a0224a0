"""Random conversation programs on the pure core: what would be trained on is what the engine returned."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from programs import STEPS, Branches, Player

TURNS = 20_000


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=25), st.integers(0, 2**32))
def test_any_program_of_a_harness(steps, seed):
    Player(random.Random(seed)).play(steps)


def test_twenty_thousand_turns_without_a_difference():
    turns, refused = 0, {}
    for seed in range(10_000):
        player = Player(random.Random(seed))
        player.play([player.rng.choice(STEPS) for _ in range(player.rng.randint(1, 60))])
        turns += player.turns
        for code, count in player.refused.items():
            refused[code] = refused.get(code, 0) + count
        if turns >= TURNS:
            break
    assert turns >= TURNS
    assert min(refused[code] for code in ("history_diverged", "turn_truncated", "generation_aborted", "broken")) > 300


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 25), st.integers(0, 2**32))
def test_any_tree_of_branches(steps, seed):
    Branches(random.Random(seed)).play(steps)


def test_five_thousand_turns_of_branches_without_a_difference():
    turns, seed = 0, 0
    while turns < 5_000:
        seed += 1
        player = Branches(random.Random(seed))
        player.play(player.rng.randint(1, 60))
        turns += player.turns
