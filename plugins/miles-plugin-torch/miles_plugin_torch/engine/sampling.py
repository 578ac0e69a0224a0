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
    """One token for each row of logits float32 [R, V], which is overwritten.

    Returns the ids [R] and their log-softmax(logits / temperature) [R] before truncation (greedy: at temperature 1).
    A row whose logits are not finite gets the log-prob NaN.
    """
    scaled = _at_temperature(logits, draws)
    top = scaled.amax(-1, keepdim=True)
    weights = torch.sub(scaled, top).exp_()
    blocks = _block_sums(weights)
    totals = blocks.sum(1)
    tokens = np.zeros(len(draws), dtype=np.int64)
    sampled = [row for row, draw in enumerate(draws) if draw.temperature > 0]
    greedy = [row for row, draw in enumerate(draws) if draw.temperature == 0]
    if greedy:
        tokens[greedy] = scaled[greedy].argmax(-1).cpu().numpy()
    if any(draw.truncates for draw in draws):
        weights, blocks = _truncated(weights, blocks, draws)
    if sampled:
        rows = slice(None) if not greedy else sampled
        tokens[sampled] = _gumbel_max(weights[rows], blocks[rows], [draws[row] for row in sampled])
    chosen = scaled.gather(1, torch.from_numpy(tokens).to(scaled.device).unsqueeze(1)).squeeze(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        logprobs = (chosen - top.squeeze(1)).double().cpu().numpy() - np.log(totals)
    return tokens, np.minimum(logprobs, 0.0).astype(np.float32)


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


def _at_temperature(logits: torch.Tensor, draws: list[Draw]) -> torch.Tensor:
    divisors = [draw.temperature or 1.0 for draw in draws]
    if any(divisor != 1.0 for divisor in divisors):
        logits.div_(torch.tensor(divisors, dtype=logits.dtype, device=logits.device).unsqueeze(1))
    return logits


def _block_sums(weights: torch.Tensor) -> _F64:
    """[R, V] -> sums over blocks of BLOCK ids, [R, ceil(V / BLOCK)]."""
    rows, size = weights.shape
    whole = size // BLOCK
    sums = weights[:, : whole * BLOCK].view(rows, whole, BLOCK).sum(-1) if whole else weights[:, :0]
    if size % BLOCK:
        sums = torch.cat((sums, weights[:, whole * BLOCK :].sum(-1, keepdim=True)), 1)
    return np.asarray(sums.double().cpu().numpy())


def _gumbel_max(weights: torch.Tensor, blocks: _F64, draws: list[Draw]) -> npt.NDArray[np.int64]:
    """weights [R, V] proportional to probabilities, and their block sums -> ids [R]."""
    digests = np.array([draw.digest for draw in draws], dtype=np.uint64)
    positions = np.array([draw.position for draw in draws], dtype=np.uint64)
    size = weights.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        lanes = np.broadcast_to(np.arange(blocks.shape[1], dtype=np.uint64), blocks.shape)
        block = (np.log(blocks) + gumbel(digests, positions, lanes)).argmax(1)
        ids = block[:, None] * BLOCK + np.arange(BLOCK)
        inside = ids < size
        columns = torch.from_numpy(np.minimum(ids, size - 1)).to(weights.device)
        candidates = np.where(inside, weights.gather(1, columns).double().cpu().numpy(), 0.0)
        noise = gumbel(digests, positions, ids.astype(np.uint64) + _IN_BLOCK)
        best = (np.log(candidates) + noise).argmax(1)
    return np.asarray(ids[np.arange(len(draws)), best])


def _truncated(weights: torch.Tensor, blocks: _F64, draws: list[Draw]) -> tuple[torch.Tensor, _F64]:
    """Weights outside top-k, then outside top-p of what is left, become 0 in the rows that ask for it.

    Top-k keeps every id that is as likely as the k-th; top-p keeps the fewest likeliest ids that reach the mass p.
    """
    weights, blocks = weights.clone(), blocks.copy()
    for row, draw in enumerate(draws):
        if not draw.truncates:
            continue
        line = weights[row]
        if 0 < draw.top_k < len(line):
            line[line < line.topk(draw.top_k).values[-1]] = 0.0
        if draw.top_p < 1.0:
            ordered, ids = line.double().sort(descending=True, stable=True)
            mass_before = ordered.cumsum(0) - ordered
            line[ids[mass_before >= draw.top_p * ordered.sum()]] = 0.0
        blocks[row] = _block_sums(weights[row : row + 1])[0]
    return weights, blocks
