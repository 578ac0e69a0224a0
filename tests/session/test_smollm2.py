"""The same programs with a real tokenizer: any ids that a model may sample, and text that is no token's own."""

from __future__ import annotations

import random

import pytest
from programs import STEPS, Player

LETTERS = "ab zé\n日本🙂<|im_end|>"


@pytest.fixture(scope="module")
def renderer():
    model = pytest.importorskip("miles_plugin_smollm2.model", reason="miles-plugin-smollm2 is not installed")
    from miles_plugin_smollm2.options import DEFAULT_SYSTEM
    from miles_plugin_smollm2.renderer import SmolLM2Renderer

    return SmolLM2Renderer(model.converted_folder(), DEFAULT_SYSTEM)


def test_two_thousand_turns_of_random_tokens_without_a_difference(renderer):
    turns, seed = 0, 0
    while turns < 2000:
        seed += 1
        player = Player(random.Random(seed), renderer, LETTERS, range(49_152))
        player.play([player.rng.choice(STEPS) for _ in range(player.rng.randint(1, 60))])
        turns += player.turns
