"""Every family through the checks of `miles families check` and the programs of a harness, with small counts."""

from __future__ import annotations

import random

import pytest
from family_renderers import renderer_of
from miles_plugin_families.catalog import FAMILIES

from miles_core.testing.families.conversations import TOOLS
from miles_core.testing.families.offline import check_offline
from miles_core.testing.families.programs import Bank, Harness

TURNS = 150
REASONING = {
    name: {**family.example, key: True}
    for name, family in FAMILIES.items()
    for key in ("thinking", "opens_thinking")
    if key in family.example
}


def test_append_only_parity_and_read_back(family, renderer):
    tallies = check_offline(renderer, 40)
    failed = {name: tally.first for name, tally in tallies.items() if tally.failed}
    assert not failed
    assert tallies["append-only"].passed > 20


TEMPLATES = ["qwen3", "qwen3.5", "qwen3.6", "qwen3.8", "glm-4.5", "gpt-oss", "llama-3", "nemotron-3"]
"""Of these the package trl has the checkpoints' own template."""


@pytest.mark.parametrize("family", TEMPLATES)
@pytest.mark.parametrize("reasons", [False, True])
def test_parity_with_the_checkpoint_s_own_template(family, reasons):
    pytest.importorskip("transformers")
    pytest.importorskip("trl")
    if reasons and family not in REASONING:
        pytest.skip("it has one way to answer")
    renderer = renderer_of(family, **REASONING[family]) if reasons else renderer_of(family)
    parity = check_offline(renderer, 60)["parity"]
    assert parity.failed == 0, parity.first
    assert parity.passed > 5


@pytest.mark.parametrize("reasons", [False, True])
def test_programs_of_a_harness(family, reasons):
    if reasons and family not in REASONING:
        pytest.skip("it has one way to answer")
    renderer = renderer_of(family, **REASONING[family]) if reasons else renderer_of(family)
    bank = Bank.of(renderer, 30, renderer.vocabulary)
    try:
        renderer.render([{"role": "user", "content": "x"}], tools=TOOLS)
        tools = TOOLS
    except ValueError:
        tools = ()
    turns, seed = 0, 0
    while turns < TURNS:
        seed += 1
        harness = Harness(renderer, bank, random.Random(f"{family}/{seed}"), linear=seed % 3 == 0, tools=tools)
        harness.play(harness.rng.randint(1, 40))
        turns += harness.turns
