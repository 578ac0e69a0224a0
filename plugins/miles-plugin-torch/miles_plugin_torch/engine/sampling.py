"""Sampling tokens whose noise is a function of the request's key and the token's position alone.

A token is drawn by the Gumbel-max rule in two levels. The vocabulary is cut into blocks of BLOCK ids; with
S_b = sum of exp(logit) over block b,

    block = argmax_b log S_b + G(key, position, b)          P(block b) = S_b / S
    token = argmax_i in block logit_i + G(key, position, i) P(token i | block b) = exp(logit_i) / S_b

which is exactly softmax(logits) with vocabulary/BLOCK + BLOCK Gumbel numbers instead of one for each id. Unlike
inverse-CDF sampling, a token changes under rounding (another batch size) only where two candidates tie to rounding:
no error adds up over the vocabulary.

G = -log(-log u), with u from splitmix64 (Steele, Lea, Flood 2014) run as a counter: nothing is carried from one token
to the next.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

BLOCK = 256
"""Part of what a seed means: another value gives other tokens."""

_U64 = npt.NDArray[np.uint64]
_F64 = npt.NDArray[np.float64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_IN_BLOCK = np.uint64(1 << 32)


@dataclass(frozen=True, slots=True)
class Draw:
    """How to choose one token: the key's digest, the token's position in its sequence, and how to sample."""

    digest: int
    position: int
    temperature: float
    top_p: float = 1.0
    top_k: int = 0

    @property
    def truncates(self) -> bool:
        return self.temperature > 0 and (self.top_p < 1.0 or self.top_k > 0)


def choose(logits: torch.Tensor, draws: list[Draw]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """One token for each of R requests from logits float32 [blocks, R, BLOCK], which are overwritten.

    Ids beyond the vocabulary, which fill the last block, have logit -inf (`in_blocks`).
    Returns the ids [R] and their log-softmax(logits / temperature) [R] before truncation (greedy: at temperature 1).
    A row whose logits are not finite gets the log-prob NaN.
    """
    _divide_by_temperature(logits, draws)
    likeliest = logits.amax(-1)
    greedy = [row for row, draw in enumerate(draws) if draw.temperature == 0]
    sampled = [row for row, draw in enumerate(draws) if draw.temperature > 0]
    weights = logits.sub_(likeliest.amax(0).view(1, -1, 1)).exp_()  # in place: logits are not needed again
    sums = _sums(weights)
    tokens = np.zeros(len(draws), dtype=np.int64)
    if greedy:
        tokens[greedy] = _likeliest(weights, likeliest, greedy)
    if sampled:
        tokens[sampled] = _gumbel_max(*_truncated(weights, sums, draws), sampled, draws)
    rows = torch.arange(len(draws), device=weights.device)
    ids = torch.from_numpy(tokens).to(weights.device)
    chosen = weights[ids // BLOCK, rows, ids % BLOCK].double().cpu().numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        logprobs = np.log(chosen) - np.log(sums.sum(1))
    return tokens, np.minimum(logprobs, 0.0).astype(np.float32)


def in_blocks(logits: torch.Tensor) -> torch.Tensor:
    """float32 [R, vocabulary] -> what `choose` takes, [blocks, R, BLOCK]."""
    rows, size = logits.shape
    blocks = -(-size // BLOCK)
    padded = torch.full((rows, blocks * BLOCK), float("-inf"), dtype=torch.float32, device=logits.device)
    padded[:, :size] = logits
    return padded.view(rows, blocks, BLOCK).transpose(0, 1)


def gumbel(digests: _U64, positions: _U64, lanes: _U64) -> _F64:
    """Standard Gumbel numbers for keys [R], positions [R] and lanes [R, n]."""
    with np.errstate(over="ignore"):
        stream = _mix(digests + (positions + np.uint64(1)) * _GOLDEN)
        bits = _mix(stream[:, None] + (lanes + np.uint64(1)) * _GOLDEN)
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return np.asarray(-np.log(-np.log(uniform)))


def _mix(z: _U64) -> _U64:
    """splitmix64's output function."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _divide_by_temperature(logits: torch.Tensor, draws: list[Draw]) -> None:
    divisors = [draw.temperature or 1.0 for draw in draws]
    if any(divisor != 1.0 for divisor in divisors):
        logits.div_(torch.tensor(divisors, dtype=logits.dtype, device=logits.device).view(1, -1, 1))


def _sums(weights: torch.Tensor) -> _F64:
    """[blocks, R, BLOCK] -> sum of each block, [R, blocks]."""
    return np.asarray(weights.sum(-1).t().double().cpu().numpy())


def _likeliest(weights: torch.Tensor, likeliest: torch.Tensor, rows: list[int]) -> npt.NDArray[np.int64]:
    """The first of the ids with the largest logit, of some rows; `likeliest` [blocks, R] is each block's largest."""
    block = likeliest[:, rows].argmax(0)
    inside = weights[block, torch.tensor(rows, device=weights.device)].argmax(-1)
    return np.asarray((block * BLOCK + inside).cpu().numpy())


def _gumbel_max(weights: torch.Tensor, sums: _F64, rows: list[int], draws: list[Draw]) -> npt.NDArray[np.int64]:
    """weights [blocks, R, BLOCK] proportional to probabilities, and their sums [R, blocks] -> ids of some rows."""
    digests = np.array([draws[row].digest for row in rows], dtype=np.uint64)
    positions = np.array([draws[row].position for row in rows], dtype=np.uint64)
    sums = sums[rows]
    lanes = np.broadcast_to(np.arange(sums.shape[1], dtype=np.uint64), sums.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        block = (np.log(sums) + gumbel(digests, positions, lanes)).argmax(1)
        at = torch.from_numpy(block).to(weights.device), torch.tensor(rows, device=weights.device)
        candidates = weights[at].double().cpu().numpy()
        ids = block[:, None] * BLOCK + np.arange(BLOCK)
        inside = (np.log(candidates) + gumbel(digests, positions, ids.astype(np.uint64) + _IN_BLOCK)).argmax(1)
    return np.asarray(ids[np.arange(len(rows)), inside])


def _truncated(weights: torch.Tensor, sums: _F64, draws: list[Draw]) -> tuple[torch.Tensor, _F64]:
    """Weights outside top-k, then outside top-p of what is left, become 0 in the rows that ask for it.

    Top-k keeps every id that is as likely as the k-th; top-p keeps the fewest likeliest ids that reach the mass p.
    """
    if not any(draw.truncates for draw in draws):
        return weights, sums
    weights, sums = weights.clone(), sums.copy()
    for row, draw in enumerate(draws):
        if not draw.truncates:
            continue
        line = weights[:, row].reshape(-1)
        if 0 < draw.top_k < len(line):
            line[line < line.topk(draw.top_k).values[-1]] = 0.0
        if draw.top_p < 1.0:
            ordered, ids = line.double().sort(descending=True, stable=True)
            mass_before = ordered.cumsum(0) - ordered
            line[ids[mass_before >= draw.top_p * ordered.sum()]] = 0.0
        weights[:, row] = line.view(-1, BLOCK)
        sums[row] = _sums(weights[:, row : row + 1])[0]
    return weights, sums
