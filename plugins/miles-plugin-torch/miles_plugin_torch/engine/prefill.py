"""Prompts on their way into KV memory: each distinct beginning is computed once, however many requests wait for it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from miles_plugin_torch.engine.attending import Chunk, PrefillAttention
from miles_plugin_torch.engine.decoder import Decoder
from miles_plugin_torch.engine.kv import KVMemory, Prefix
from miles_plugin_torch.engine.prefix_index import TokenArray, common_length

SHARED_AT_LEAST = 8
"""Two prompts that begin with so many equal tokens have that beginning computed once, before both."""


@dataclass(slots=True, eq=False)
class Job:
    """A token sequence to compute into `prefix`, after the beginning that it `waits_for` in common with other jobs.

    `computed` counts the tokens that were computed for it; those of a common beginning count for its first job.
    """

    prefix: Prefix
    waits_for: Job | None = None
    charged: Job | None = None
    begun: bool = False
    computed: int = 0

    @property
    def tokens(self) -> TokenArray:
        return self.prefix.tokens

    @property
    def finished(self) -> bool:
        return self.prefix.final is not None


@dataclass(slots=True)
class Prefill:
    """The jobs that are not finished, in order of arrival. `computed_tokens` counts since start."""

    decoder: Decoder
    memory: KVMemory
    jobs: list[Job] = field(default_factory=list)
    computed_tokens: int = 0

    def request(self, tokens: TokenArray) -> Job:
        """The job that computes these tokens: one that is under way, one already finished, or a new one, for which
        the caller has made room."""
        for job in self.jobs:
            if np.array_equal(job.tokens, tokens):
                return job
        found, reused = self.memory.find(tokens)
        if found is not None and reused == len(found) == len(tokens) and found.final is not None:
            return Job(found)
        job = Job(self.memory.new_prefix(tokens))
        job.prefix.users += 1
        self._share_beginning(job, reused)
        self.jobs.append(job)
        return job

    def clear(self) -> None:
        """Forget all jobs; their prefixes are no longer held for them."""
        for job in self.jobs:
            job.prefix.users -= 1
        self.jobs.clear()

    def advance(self, budget: int) -> None:
        """Compute up to `budget` tokens of the first jobs, in one forward pass."""
        chunks: list[Chunk] = []
        for job in self.jobs:
            if budget <= 0:
                break
            if job.waits_for in self.jobs:  # finished ones have left the list
                continue
            self._begin(job)
            prefix = job.prefix
            count = min(budget, len(prefix) - prefix.done)
            chunks.append(Chunk(prefix, prefix.done, prefix.done + count))
            (job.charged or job).computed += count
            budget -= count
        if chunks:
            self._compute(chunks)
        for job in self.jobs:
            if job.finished:
                job.prefix.users -= 1
        self.jobs = [job for job in self.jobs if not job.finished]

    def _share_beginning(self, job: Job, reused: int) -> None:
        """Where a job that has not begun starts with the same tokens, let a third job compute those before both."""
        for other in self.jobs:
            if other.begun:
                continue
            common = common_length(other.tokens, job.tokens)
            if common - reused < SHARED_AT_LEAST:
                continue
            if common == len(other.tokens):
                job.waits_for = other
            elif other.waits_for is None and self.memory.make_room(common):
                beginning = Job(self.memory.new_prefix(other.tokens[:common]), charged=other)
                beginning.prefix.users += 1
                self.jobs.insert(self.jobs.index(other), beginning)
                other.waits_for = job.waits_for = beginning
            else:
                continue
            return

    def _begin(self, job: Job) -> None:
        """Start from what is stored by now. The last token is computed in any case, for its final state."""
        if job.begun:
            return
        base, reused = self.memory.find(job.tokens)
        if base is not None:
            self.memory.copy_prefix(job.prefix, base, min(reused, len(job.tokens) - 1))
        job.begun = True

    def _positions(self, chunk: Chunk) -> npt.NDArray[np.int64]:
        """int64 [n], or [3, n] of a model that sees."""
        if self.decoder.vision is None:
            return np.arange(chunk.start, chunk.stop)
        return self.decoder.vision.positions(chunk.prefix.tokens)[:, chunk.start : chunk.stop]

    def _compute(self, chunks: list[Chunk]) -> None:
        device = self.memory.shape.device
        tokens = np.concatenate([chunk.prefix.tokens[chunk.start : chunk.stop] for chunk in chunks])
        positions = np.concatenate([self._positions(chunk) for chunk in chunks], axis=-1)
        ends = np.cumsum([chunk.stop - chunk.start for chunk in chunks]) - 1
        final = self.decoder.final(
            torch.from_numpy(tokens.astype(np.int64)).to(device),
            torch.from_numpy(positions).to(device),
            PrefillAttention(chunks, self.memory.shape.dtype, device),
            torch.from_numpy(ends).to(device),
        )
        self.computed_tokens += len(tokens)
        for row, chunk in enumerate(chunks):
            chunk.prefix.done = chunk.stop
            if chunk.stop == len(chunk.prefix):
                chunk.prefix.final = final[row].clone()
                self.memory.store(chunk.prefix)
