"""Packed, prefix-shared gradients against one sequence at a time with transformers' own attention in float64."""

from __future__ import annotations

import numpy as np
import pytest
from trainer_cases import (
    make_trainer,
    plain_policy_gradient,
    random_rows,
    relative_difference,
    trainer_gradient,
)

TOLERANCE = 1e-5


def agrees(files, rows, **options) -> None:
    found = trainer_gradient(make_trainer(files, **options), rows)
    assert relative_difference(found, plain_policy_gradient(files, rows)) < TOLERANCE


@pytest.mark.parametrize("micro_tokens", [8, 40, 100_000])
def test_ragged_groups(tiny, micro_tokens):
    agrees(tiny, random_rows(np.random.default_rng(1)), micro_tokens=micro_tokens)


def test_without_sharing(tiny):
    agrees(tiny, random_rows(np.random.default_rng(2)), share_prefix=False)


def test_gradient_checkpointing(tiny):
    agrees(tiny, random_rows(np.random.default_rng(3)), gradient_checkpointing=True)


def test_logits_in_several_chunks(tiny):
    agrees(tiny, random_rows(np.random.default_rng(4)), logit_tokens=5)


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.3])
def test_temperature(tiny, temperature):
    agrees(tiny, random_rows(np.random.default_rng(5), temperature=temperature))
