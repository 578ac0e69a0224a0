"""Random programs of harnesses that show images: what is trained on is what the engine was given and what it said."""

from __future__ import annotations

import random

import pytest

from miles_core.testing import CharImageRenderer
from miles_core.testing.families.conversations import TOOLS
from miles_core.testing.families.programs import Bank, Harness

RENDERER = CharImageRenderer()
BANK = Bank(tuple((*RENDERER.encode(text).tolist(), 0) for text in ("yes", '<call>add {"a": 1}</call>', "")),
            tuple(range(97, 123)), (0,))  # fmt: skip


@pytest.mark.parametrize("linear", [True, False])
def test_what_is_trained_on_has_the_images_that_the_engine_saw(linear, monkeypatch):
    monkeypatch.setattr("miles_core.testing.families.programs.TEXTS", ("4", "2+2=", "a b\n", ""))
    shown = 0
    for seed in range(25):
        harness = Harness(RENDERER, BANK, random.Random(seed), linear=linear, tools=TOOLS[:1], images=True)
        harness.play(25)
        shown += sum(len(each.answers[-1].images) for each in harness.known)
    assert shown > 100
