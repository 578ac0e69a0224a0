"""The tasks of a mixture of generators: solved examples, held-out tasks, training tasks.

Each split has its own seeds, so they are different random streams. Besides, a question that an earlier split asks is
replaced (examples come before held-out tasks, these before training tasks): task `i` of a split is its generator's
entry `i` under the first of a series of seeds whose question is allowed. So a task is a function of the options and
`i` alone, and is generated only when it is needed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

from miles_core import Message, RequestError, RunError, Task
from miles_plugin_reasoning_gym.generators import Origin
from miles_plugin_reasoning_gym.options import QUESTION, DataOptions

_TRIES = 100
"""How many seeds are tried for one task before the generator is said to have too few different questions."""


@dataclass(frozen=True, slots=True)
class _Found:
    """An entry of a generator and where it comes from."""

    slot: int
    origin: Origin
    question: str
    answer: str | None


class Splits:
    """`seed` is that of the training tasks. Raises RunError when a generator fails."""

    def __init__(self, options: DataOptions, seed: int) -> None:
        self._options = options
        self._seed = seed

    def training_task(self, slot: int) -> Task:
        """Task `slot` of `size`. Raises RequestError when all that its generator can ask is held out."""
        for attempt in range(_TRIES):
            found = self._find("train", self._seed, slot, self._options.size, attempt)
            if found.question not in self._taken:
                return self._task("train", found)
        raise RequestError(
            f"every question of {found.origin.generator!r} that was tried is held out: it has too few different ones",
            where="data.held_out",
            mend="hold out fewer tasks or configure harder ones",
        )

    @cached_property
    def held_out_tasks(self) -> list[Task]:
        """At most `held_out` tasks of distinct questions, in a fixed order."""
        return [self._task("held-out", found) for found in self._held_out]

    @cached_property
    def _held_out(self) -> list[_Found]:
        taken = {found.question for found in self._examples}
        return self._distinct("held-out", self._options.held_out_seed, self._options.held_out, taken)

    @cached_property
    def _examples(self) -> list[_Found]:
        """As many as the options say, or RequestError: a prompt must not silently have fewer."""
        count = self._options.examples
        found = self._distinct("example", self._options.held_out_seed, count, set())
        unsolved = sorted({example.origin.generator for example in found if example.answer is None})
        if len(found) < count or unsolved:
            why = f"{', '.join(unsolved)} give no answer" if unsolved else f"there are only {len(found)} questions"
            raise RequestError(
                f"{count} solved examples cannot be given: {why}", where="data.examples", mend="ask fewer"
            )
        return found

    @cached_property
    def _taken(self) -> frozenset[str]:
        return frozenset(found.question for found in (*self._examples, *self._held_out))

    def _distinct(self, split: str, seed: int, size: int, taken: set[str]) -> list[_Found]:
        chosen: dict[str, _Found] = {}
        for slot in range(size):
            for attempt in range(_TRIES):
                found = self._find(split, seed, slot, size, attempt)
                if found.question not in chosen and found.question not in taken:
                    chosen[found.question] = found
                    break
        return list(chosen.values())

    def _find(self, split: str, seed: int, slot: int, size: int, attempt: int) -> _Found:
        mixture = self._options.tasks
        weights = [task.weight for task in mixture.values()]
        [name] = Random(f"mixture {split} {seed} {slot}").choices(list(mixture), weights)
        config = json.dumps(mixture[name].config, sort_keys=True)
        origin = Origin(name, config, _stream(split, name, seed, attempt), size, slot)
        try:
            entry = origin.entry()
        except Exception as error:  # a generator may raise anything
            raise RunError(
                f"reasoning-gym's {name!r} could not generate a task: {type(error).__name__}: {error}",
                where=f"{split} task {slot}",
                mend="choose another configuration or size, or leave this generator out",
            ) from error
        answer = entry["answer"]
        return _Found(slot, origin, str(entry["question"]), None if answer is None else str(answer))

    def _task(self, split: str, found: _Found) -> Task:
        return Task(
            id=f"{split}-{found.origin.generator}-{found.slot}",
            prompt=self._prompt(found.question),
            answer=found.answer,
            metadata=found.origin.to_metadata(found.question),
        )

    def _prompt(self, question: str) -> str | tuple[Message, ...]:
        ask = self._options.prompt
        turns: list[Mapping[str, Any]] = []
        if self._options.system:
            turns.append({"role": "system", "content": self._options.system})
        for example in self._examples:
            turns.append({"role": "user", "content": ask.replace(QUESTION, example.question)})
            turns.append({"role": "assistant", "content": example.answer})
        text = ask.replace(QUESTION, question)
        return (*turns, {"role": "user", "content": text}) if turns else text


def _stream(split: str, name: str, seed: int, attempt: int) -> int:
    """The generator's seed: 31 bits that splits, generators, seeds and attempts do not share.

    Generators seed each entry with seed + index, so neighbouring seeds would give the same entries, one place on.
    """
    text = f"{split}\x1f{name}\x1f{seed}\x1f{attempt}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little") >> 1
