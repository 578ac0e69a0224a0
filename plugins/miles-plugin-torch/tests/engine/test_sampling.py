"""The two-level Gumbel-max rule: its distribution, its truncation, and what its noise depends on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from miles_plugin_torch.engine.sampling import BLOCK, Draw, gumbel, in_blocks
from miles_plugin_torch.engine.sampling import choose as choose_from_blocks
from transformers import TopKLogitsWarper, TopPLogitsWarper


def choose(logits: torch.Tensor, asked: list[Draw]) -> tuple[np.ndarray, np.ndarray]:
    return choose_from_blocks(in_blocks(logits), asked)


def draws(count: int, temperature: float = 1.0, **truncation: float) -> list[Draw]:
    return [Draw(digest=7, position=index, temperature=temperature, **truncation) for index in range(count)]  # type: ignore[arg-type]


def frequencies(logits: torch.Tensor, count: int, temperature: float, **truncation: float) -> np.ndarray:
    tokens, _ = choose(logits.repeat(count, 1), draws(count, temperature, **truncation))
    return np.bincount(tokens, minlength=logits.shape[0]) / count


@pytest.mark.parametrize("vocabulary", [5, BLOCK, 3 * BLOCK + 17])
@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_tokens_follow_the_softmax(vocabulary: int, temperature: float) -> None:
    logits = torch.randn(vocabulary, generator=torch.Generator().manual_seed(1)) * 2
    expected = torch.softmax(logits.double() / temperature, -1).numpy()
    count = 20_000
    found = frequencies(logits, count, temperature)
    likely = expected > 20 / count
    deviations = (found - expected)[likely] / np.sqrt(expected * (1 - expected) / count)[likely]
    assert np.abs(deviations).max() < 4.8  # standard errors, over at most 785 ids
    assert np.mean(deviations**2) < 1 + 4 * np.sqrt(2 / likely.sum())


@pytest.mark.parametrize(("top_p", "top_k"), [(0.7, 0), (1.0, 6), (0.8, 12)])
def test_truncation_is_that_of_transformers(top_p: float, top_k: int) -> None:
    logits = torch.randn(600, generator=torch.Generator().manual_seed(2)) * 2
    kept = logits[None].clone()
    if top_k:
        kept = TopKLogitsWarper(top_k)(None, kept)  # type: ignore[arg-type]
    if top_p < 1:
        kept = TopPLogitsWarper(top_p)(None, kept)  # type: ignore[arg-type]
    expected = torch.softmax(kept[0].double(), -1).numpy()
    count = 6_000
    found = frequencies(logits, count, 1.0, top_p=top_p, top_k=top_k)
    assert set(np.flatnonzero(found)) <= set(np.flatnonzero(expected))
    assert np.abs(found - expected).max() < 5 * np.sqrt(0.25 / count)
    _, logprobs = choose(logits.repeat(4, 1), draws(4, top_p=top_p, top_k=top_k))
    tokens, plain = choose(logits.repeat(4, 1), draws(4, top_p=top_p, top_k=top_k))
    before = torch.log_softmax(logits.double(), -1).numpy()[tokens]
    np.testing.assert_allclose(logprobs, before, atol=1e-5)
    np.testing.assert_array_equal(logprobs, plain)


def test_greedy_is_the_likeliest_with_its_logprob_at_temperature_one() -> None:
    logits = torch.randn(3, 1000, generator=torch.Generator().manual_seed(4))
    tokens, logprobs = choose(logits.clone(), draws(3, 0.0))
    assert tokens.tolist() == logits.argmax(-1).tolist()
    expected = torch.log_softmax(logits.double(), -1).max(-1).values.numpy()
    np.testing.assert_allclose(logprobs, expected, atol=1e-6)


@settings(deadline=None, max_examples=50)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.7]), min_size=1, max_size=9),
    vocabulary=st.sampled_from([1, 37, 256, 300, 1024]),
)
def test_a_row_is_chosen_alike_in_any_batch(seed: int, rows: list[float], vocabulary: int) -> None:
    logits = torch.randn(len(rows), vocabulary, generator=torch.Generator().manual_seed(seed)) * 3
    asked = [Draw(seed + row, row * 11, temperature) for row, temperature in enumerate(rows)]
    together = choose(logits.clone(), asked)
    for row in range(len(rows)):
        alone = choose(logits[row : row + 1].clone(), [asked[row]])
        assert alone[0][0] == together[0][row]
        assert abs(alone[1][0] - together[1][row]) < 1e-5


def test_not_finite_logits_are_seen() -> None:
    logits = torch.zeros(3, 300)
    logits[0, 5], logits[1, 7] = float("nan"), float("inf")
    _, logprobs = choose(logits, draws(3))
    assert np.isnan(logprobs).tolist() == [True, True, False]


def test_noise_is_standard_gumbel_and_differs_by_key_position_and_lane() -> None:
    keys = np.arange(300, dtype=np.uint64)
    lanes = np.broadcast_to(np.arange(300, dtype=np.uint64), (300, 300))
    noise = gumbel(keys, keys[::-1].copy(), lanes)
    assert abs(noise.mean() - np.euler_gamma) < 0.02
    assert abs(noise.var() - np.pi**2 / 6) < 0.04
    assert len(np.unique(noise)) == noise.size
    for shifted in (noise[1:, :] * noise[:-1, :], noise[:, 1:] * noise[:, :-1]):  # neighbours do not correlate
        assert abs(shifted.mean() - np.euler_gamma**2) < 0.05
