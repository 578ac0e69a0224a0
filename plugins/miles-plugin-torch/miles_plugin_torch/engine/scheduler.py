"""Continuous batching: requests join and leave between decode steps. Runs in the engine's computing thread only.

One step: admit waiting requests in order of arrival while there is room, compute a bounded number of prompt tokens,
run one token of every running request, and choose the next token of all, the freshly prefilled ones included, from one
product with the head.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import groupby

import torch

from miles_core import EngineStats, Finish, GenerateRequest, RunError
from miles_plugin_torch.engine.attending import DecodeAttention
from miles_plugin_torch.engine.decoder import Decoder
from miles_plugin_torch.engine.kv import KVMemory, KVShape, Slot, row_capacity
from miles_plugin_torch.engine.live import Live
from miles_plugin_torch.engine.options import TorchEngineOptions
from miles_plugin_torch.engine.prefill import Prefill
from miles_plugin_torch.engine.sampling import choose


class Scheduler:
    """Owns every request between `submit` and the step that returns it."""

    def __init__(self, decoder: Decoder, options: TorchEngineOptions, dtype: torch.dtype, device: torch.device) -> None:
        shape = KVShape(decoder.layers, decoder.kv_heads, decoder.head_dim, dtype, device)
        self.memory = KVMemory(shape, options.kv_tokens)
        self.prefill = Prefill(decoder, self.memory)
        self.waiting: deque[Live] = deque()
        self.starting: list[Live] = []
        self.version: int | None = None
        self._decoder, self._options = decoder, options
        self._digests: dict[Live, int] = {}
        self._owners: dict[Slot, Live] = {}
        self._prompt_tokens = self._cached_tokens = self._sampled_tokens = 0

    @staticmethod
    def tokens_needed(request: GenerateRequest) -> int:
        """KV memory that a request may need when it runs alone: its row, and the prefix that fills it."""
        most = len(request.tokens) + request.sampling.max_new_tokens
        return row_capacity(most) + most

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.waiting or self.starting or self._owners)

    def running(self) -> list[Live]:
        """The requests that own a row."""
        return list(self._owners.values())

    def submit(self, lives: list[Live]) -> None:
        """Take new requests, in order."""
        vision = self._decoder.vision
        for live in lives:
            self._digests[live] = live.request.noise.digest()
            if vision is not None and live.request.images:
                live.prompt = vision.take(live.request.tokens, live.request.images)
                live.shift = int(vision.positions(live.prompt).max()) + 1 - len(live.prompt)
            self.waiting.append(live)

    def step(self) -> list[Live]:
        """Advance everything by one token; the requests that ended."""
        self._admit()
        if self.prefill.jobs:
            self.prefill.advance(self._options.prefill_tokens)
        final, lives = self._decode()
        joining = [live for live in self.starting if live.job is not None and live.job.finished]
        final += [live.job.prefix.final for live in joining]  # type: ignore[union-attr,misc]
        if not (lives or joining):
            return []
        self._open_rows(list(joining))
        lives += joining
        self._sample(lives, torch.cat([states.view(-1, states.shape[-1]) for states in final]))
        ended = [live for live in lives if live.finish is not None or live.error is not None]
        for live in ended:
            self._leave(live)
        if not self._options.prefix_cache and not self.prefill.jobs:
            self.memory.drop_unused()
        return ended

    def abort(self) -> list[Live]:
        """End everything in flight with what it has."""
        ended = self.in_flight()
        for live in ended:
            live.finish = Finish.ABORT
            self.remove(live)
        self.prefill.clear()
        return ended

    def in_flight(self) -> list[Live]:
        """Every request that was submitted and has not ended, in order of arrival."""
        return sorted([*self.waiting, *self.starting, *self.running()], key=lambda live: live.arrival)

    def remove(self, live: Live) -> None:
        """Forget a request, wherever it is."""
        if live in self.waiting:
            self.waiting.remove(live)
        self._release(live)
        if self._digests.pop(live, None) is not None and self._decoder.vision is not None:
            self._decoder.vision.give(live.request.images)

    def retract(self) -> None:
        """Put everything in flight back to waiting and forget all KV: it belongs to other weights."""
        lives = self.in_flight()
        for live in lives:
            self._release(live)
        self.waiting = deque(lives)
        self.prefill.clear()
        self.memory.clear()

    def keep_in_place(self) -> None:
        """New weights, old KV: only the final states, which the new head cannot read, are computed again."""
        for prefix in self.memory.prefixes:
            if prefix.final is not None:
                prefix.final = None
                prefix.done = len(prefix) - 1

    def flush(self) -> None:
        """Forget stored prefixes that no request needs."""
        self.memory.drop_unused()

    def stats(self, busy_seconds: float) -> EngineStats:
        """Counters since start."""
        return EngineStats(
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            sampled_tokens=self._sampled_tokens,
            busy_seconds=busy_seconds,
            running=len(self.running()),
            waiting=len(self.waiting) + len(self.starting),
            extra={"kv_tokens": float(self.memory.held()), "prefilled_tokens": float(self.prefill.computed_tokens)},
        )

    def _admit(self) -> None:
        """Requests join in order of arrival; the first one without room holds back those behind it."""
        while self.waiting and len(self.starting) + len(self._owners) < self._options.max_running:
            live = self.waiting[0]
            tokens = live.sequence()
            capacity = row_capacity(live.most_tokens)
            if not self.memory.make_room(capacity + len(tokens)):
                return
            self.waiting.popleft()
            live.promised = capacity
            self.memory.promised += capacity
            live.job = self.prefill.request(tokens)
            live.job.prefix.users += 1
            self.starting.append(live)

    def _open_rows(self, joining: list[Live]) -> None:
        """Give each a row that begins with its prefix; those with one prefix and one capacity at once."""
        joining.sort(key=lambda live: (id(live.job), live.promised, live.arrival))
        for _, several in groupby(joining, key=lambda live: (id(live.job), live.promised)):
            lives = list(several)
            job = lives[0].job
            assert job is not None
            capacity = lives[0].promised
            self.memory.promised -= capacity * len(lives)
            slots = self.memory.open_rows(job.prefix, capacity, len(lives))
            for live, slot in zip(lives, slots, strict=True):
                if live.cached_tokens is None:
                    self._count_prompt(live)
                live.slot, live.promised, live.job = slot, 0, None
                self._owners[slot] = live
                self.starting.remove(live)
            job.prefix.users -= len(lives)

    def _count_prompt(self, live: Live) -> None:
        """Who asks first for a prompt pays for what was computed; the others find it."""
        assert live.job is not None
        prompt = len(live.request.tokens)
        live.cached_tokens = prompt - min(prompt, live.job.computed)
        live.job.computed = 0
        self._prompt_tokens += prompt
        self._cached_tokens += live.cached_tokens

    def _decode(self) -> tuple[list[torch.Tensor], list[Live]]:
        """Run the last token of every running request: final states [R, width], and the requests in their order."""
        slabs = [slab for _, slab in sorted(self.memory.slabs.items()) if slab.slots]
        if not slabs:
            return [], []
        lives = [self._owners[slot] for slab in slabs for slot in slab.slots]
        device = self.memory.shape.device
        attention = DecodeAttention(slabs, self.memory.shape.kv_heads, self.memory.shape.dtype, device)
        tokens = torch.tensor([live.tokens[-1] for live in lives], device=device)
        positions = attention.positions
        if self._decoder.vision is not None:
            positions = (positions + torch.tensor([live.shift for live in lives], device=device)).expand(3, -1)
        final = self._decoder.final(tokens, positions, attention, None)
        for slot in self._owners:
            slot.length += 1
        return [final], lives

    def _sample(self, lives: list[Live], final: torch.Tensor) -> None:
        """Choose the next token of each from its final state."""
        assert self.version is not None
        draws = [live.draw(self._digests[live]) for live in lives]
        tokens, logprobs = choose(self._decoder.logits(final), draws)
        self._sampled_tokens += len(lives)
        for live, token, logprob in zip(lives, tokens.tolist(), logprobs.tolist(), strict=True):
            if math.isfinite(logprob):
                live.append(token, logprob, self.version)
            else:
                live.error = RunError(
                    f"the logits of request {live.request.id!r} are not finite at output token {len(live.tokens)} "
                    f"under weight version {self.version}",
                    mend="the weights diverged: lower the learning rate, or look at the step that made this version",
                )

    def _leave(self, live: Live) -> None:
        """A request ended: keep what it computed for a next turn, and give back what it held."""
        slot = live.slot
        keep = self._options.prefix_cache and live.error is None
        if keep and slot is not None and slot.length > len(live.request.tokens):
            self.memory.keep(live.sequence()[: slot.length], slot)
        self.remove(live)

    def _release(self, live: Live) -> None:
        """Give back what a request holds, whatever its state."""
        if live.slot is not None:
            del self._owners[live.slot]
            self.memory.close_row(live.slot)
            live.slot = None
        if live.job is not None:
            live.job.prefix.users -= 1
            self.memory.promised -= live.promised
            live.job, live.promised = None, 0
            self.starting.remove(live)
