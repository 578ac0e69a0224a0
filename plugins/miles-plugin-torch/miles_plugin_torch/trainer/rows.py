"""Sequences as rows to pack, and their columns as flat tensors of a micro-batch."""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Sequence as Several

import numpy as np
import torch

from miles_core import RunError, Sequence
from miles_plugin_torch.trainer.packing import FloatArray, MicroBatch, PackRow
from miles_plugin_torch.vision import Vision


def pack_row(
    index: int, sequence: Sequence, trajectory: Hashable, group: Hashable, vision: Vision | None = None
) -> PackRow | None:
    """The row of a sequence, as `vision` has its images where the model sees; None when nothing in it was sampled, so
    that there is nothing to compute.

    Raises RunError when its first token is sampled: nothing precedes it, so it has no log-prob.
    """
    targets_at = np.flatnonzero(sequence.sampled)
    if len(targets_at) == 0:
        return None
    if targets_at[0] == 0:
        raise RunError(
            f"the first token of a sequence of trajectory {trajectory!r} is marked as sampled, but nothing precedes it",
            mend="give the sequence a prompt of at least one token",
        )
    temperature = np.ones(len(sequence), dtype=np.float32)
    for span in sequence.spans:
        if span.temperature > 0:  # greedy decoding reports its log-probs at temperature 1
            temperature[span.start : span.stop] = span.temperature
    keys = sequence.tokens if vision is None else vision.take(sequence.tokens, sequence.images)
    return PackRow(
        index=index,
        tokens=keys,
        targets_at=targets_at,
        temperature=temperature[targets_at],
        trajectory=trajectory,
        group=group,
        positions=None if vision is None else vision.positions(keys),
    )


def prompt_key(sequence: Sequence) -> bytes:
    """Equal for sequences that start with the same prompt: what may share when no group is known."""
    return sequence.tokens[: sequence.prompt_length].tobytes()


def gather(columns: Several[FloatArray | None], batch: MicroBatch, device: torch.device) -> torch.Tensor:
    """float32 [M]: of each row, its column [n] (by the row's index) at the row's targets."""
    parts = []
    for row in batch.rows:
        column = columns[row.index]
        assert column is not None
        parts.append(column[row.targets_at])
    return torch.from_numpy(np.concatenate(parts).astype(np.float32)).to(device)


def scatter(values: torch.Tensor, batch: MicroBatch, into: list[FloatArray]) -> None:
    """The inverse: write float32 [M] into the rows' arrays [n] at their targets."""
    flat = values.detach().float().cpu().numpy()
    start = 0
    for row in batch.rows:
        stop = start + len(row.targets_at)
        into[row.index][row.targets_at] = flat[start:stop]
        start = stop
