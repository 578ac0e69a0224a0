"""Packed, prefix-shared gradients against one sequence at a time with transformers' own attention in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trainer_cases import (
    VOCABULARY,
    SupervisedCase,
    WholeSequenceCase,
    make_row,
    make_sequence,
    make_trainer,
    plain_logprobs,
    plain_model,
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


def test_fully_masked_rows_are_skipped_and_change_nothing(tiny):
    rng = np.random.default_rng(6)
    rows = random_rows(rng)
    unmasked = trainer_gradient(make_trainer(tiny), rows)
    for group in ("g0", "alone"):
        tokens = rows[0].sequence.tokens.copy()
        rows.insert(1, make_row(make_sequence(tokens, np.zeros(len(tokens)), rng), f"masked-{group}", group, rng))
    agrees(tiny, rows)
    found = trainer_gradient(make_trainer(tiny), rows)
    assert all(torch.equal(found[name], unmasked[name]) for name in found)


def test_several_sequences_a_trajectory_and_shrunk_groups(tiny):
    """A branching trajectory: its second sequence continues the first; one group kept a single trajectory."""
    rng = np.random.default_rng(7)
    rows = random_rows(rng, groups=2, size=3)
    first = rows[1]
    longer = np.concatenate([first.sequence.tokens, rng.integers(0, VOCABULARY, 7)])
    mask = np.concatenate([np.zeros(len(first.sequence), bool), [False, False], np.ones(5, bool)])
    rows.insert(2, make_row(make_sequence(longer, mask, rng), first.trajectory, first.group, rng))
    rows.append(random_rows(rng, groups=1, size=1)[0])
    rows[-1] = make_row(rows[-1].sequence, "alone", "shrunk", rng)
    for micro_tokens in (16, 64, 4096):
        agrees(tiny, rows, micro_tokens=micro_tokens)


def test_identical_and_nested_rows(tiny):
    """Rows that are equal, or a prefix of another: their suffix is empty."""
    rng = np.random.default_rng(8)
    tokens = rng.integers(0, VOCABULARY, 12)
    masks = [np.arange(12) >= 8, np.arange(12) >= 8, np.arange(9) >= 8, np.arange(10) >= 3]
    rows = [make_row(make_sequence(tokens[: len(mask)], mask, rng), f"t{i}", "g", rng) for i, mask in enumerate(masks)]
    agrees(tiny, rows)


def test_long_suffixes_go_in_chunks_of_queries(tiny, monkeypatch):
    monkeypatch.setattr("miles_plugin_torch.trainer.packed_attention.QUERY_CHUNK", 5)
    agrees(tiny, random_rows(np.random.default_rng(9), longest=40))


def test_demonstrations_beside_sampled_rows(tiny):
    rng = np.random.default_rng(10)
    rows = random_rows(rng, groups=1) + random_rows(rng, groups=2, demonstration=True)
    found = trainer_gradient(make_trainer(tiny, loss=SupervisedCase), rows)
    model = plain_model(tiny)
    sum(-plain_logprobs(model, row.sequence).sum() / len(rows) for row in rows).backward()
    assert relative_difference(found, {n: p.grad for n, p in model.named_parameters()}) < TOLERANCE


def test_last_layers(tiny):
    rows = random_rows(np.random.default_rng(11))
    trainer = make_trainer(tiny, train={"last_layers": 1})
    found = trainer_gradient(trainer, rows)
    expected = plain_policy_gradient(tiny, rows)
    assert {name.split(".")[1] for name in found} == {"layers", "norm"}
    assert all(".layers.2." in name or name == "model.norm.weight" for name in found)
    assert relative_difference(found, {name: expected[name] for name in found}) < TOLERANCE


def test_a_trajectory_is_never_torn(llama):
    """The loss looks at whole trajectories, so tearing one would change the gradient."""
    rng = np.random.default_rng(12)
    rows = [make_row(row.sequence, f"t{i // 3}", row.group, rng) for i, row in enumerate(random_rows(rng, size=6))]
    whole = trainer_gradient(make_trainer(llama, loss=WholeSequenceCase, micro_tokens=100_000), rows)
    for micro_tokens in (4, 60):
        parts = trainer_gradient(make_trainer(llama, loss=WholeSequenceCase, micro_tokens=micro_tokens), rows)
        assert relative_difference(parts, whole) < TOLERANCE


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**31),
    groups=st.integers(1, 3),
    size=st.integers(1, 5),
    prompt=st.integers(1, 20),
    longest=st.integers(1, 30),
    micro_tokens=st.integers(1, 200),
    logit_tokens=st.integers(1, 100),
)
def test_any_shape(llama, seed, groups, size, prompt, longest, micro_tokens, logit_tokens):
    rows = random_rows(np.random.default_rng(seed), groups=groups, size=size, prompt=prompt, longest=longest)
    agrees(llama, rows, micro_tokens=micro_tokens, logit_tokens=logit_tokens)
