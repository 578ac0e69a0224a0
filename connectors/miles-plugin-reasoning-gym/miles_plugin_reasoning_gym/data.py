"""Training tasks and held-out tasks of a mixture of generators.

Each split has its own seeds, so the two are different random streams, and besides a training prompt that equals a
held-out prompt is replaced: task `i` of a split is its generator's entry `i` under the first of a series of seeds whose
prompt is allowed. So a task is a function of the options and `i` alone, and is generated only when it is drawn.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from random import Random
from typing import Any

from miles_core import BuildContext, Draw, RequestError, RunError, Task
from miles_plugin_reasoning_gym.generators import Origin
from miles_plugin_reasoning_gym.options import QUESTION, DataOptions

_TRIES = 100
"""How many seeds are tried for one task before the generator is said to have too few different prompts."""


class ReasoningGymData:
    """Endless (or `epochs` long) tasks. Draws each training task once an epoch, in an order that the seed gives."""

    def __init__(self, options: DataOptions, context: BuildContext) -> None:
        self._options = options
        self._seed = context.seed if options.seed is None else options.seed
        self._position = 0
        self._order: tuple[int, list[int]] = (-1, [])

    def draw(self) -> Draw | None:
        """The next task. Raises RunError when a generator fails, RequestError when it has too few prompts."""
        if self._position == self.size():
            return None
        epoch, place = divmod(self._position, self._options.size)
        task = self._training_task(self._order_of(epoch)[place])
        self._position += 1
        return Draw(task, draw=epoch)

    def held_out(self, count: int) -> list[Task]:
        """The first `count` held-out tasks; fewer when the recipe or the generators have fewer distinct prompts."""
        if self._options.held_out == 0:
            raise RequestError("there is no held-out split", where="data.held_out", mend="set held_out to 1 or more")
        return self._held_out_tasks[:count]

    def size(self) -> int | None:
        return None if self._options.epochs is None else self._options.epochs * self._options.size

    def state(self) -> Mapping[str, Any]:
        return {"position": self._position, "seed": self._seed, "size": self._options.size}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue after the last draw. Raises RequestError when the state is of other data."""
        for key, ours in (("seed", self._seed), ("size", self._options.size)):
            if state[key] != ours:
                raise RequestError(
                    f"the saved position is in data of {key} {state[key]}, but the recipe's is {ours}",
                    where=f"data.{key}",
                    mend=f"resume with {key}: {state[key]}",
                )
        self._position = int(state["position"])

    def _order_of(self, epoch: int) -> list[int]:
        if self._order[0] != epoch:
            order = list(range(self._options.size))
            Random(f"order {self._seed} {epoch}").shuffle(order)
            self._order = (epoch, order)
        return self._order[1]

    def _training_task(self, slot: int) -> Task:
        for attempt in range(_TRIES):
            task = self._task("train", self._seed, slot, self._options.size, attempt)
            if _user_text(task) not in self._held_out_prompts:
                return task
        raise RequestError(
            f"every prompt of {task.metadata['generator']!r} that was tried is held out: it has too few different ones",
            where="data.held_out",
            mend="hold out fewer tasks or configure harder ones",
        )

    @cached_property
    def _held_out_prompts(self) -> frozenset[str]:
        return frozenset(_user_text(task) for task in self._held_out_tasks)

    @cached_property
    def _held_out_tasks(self) -> list[Task]:
        tasks: dict[str, Task] = {}
        for slot in range(self._options.held_out):
            for attempt in range(_TRIES):
                task = self._task("held-out", self._options.held_out_seed, slot, self._options.held_out, attempt)
                if _user_text(task) not in tasks:
                    tasks[_user_text(task)] = task
                    break
        return list(tasks.values())

    def _task(self, split: str, seed: int, slot: int, size: int, attempt: int) -> Task:
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
        return Task(
            id=f"{split}-{name}-{slot}",
            prompt=self._prompt(entry["question"]),
            answer=None if entry["answer"] is None else str(entry["answer"]),
            metadata=origin.to_metadata(entry["question"]),
        )

    def _prompt(self, question: str) -> str | tuple[Mapping[str, Any], ...]:
        text = self._options.prompt.replace(QUESTION, question)
        if not self._options.system:
            return text
        return ({"role": "system", "content": self._options.system}, {"role": "user", "content": text})


def _user_text(task: Task) -> str:
    return str(task.messages[-1]["content"])


def _stream(split: str, name: str, seed: int, attempt: int) -> int:
    """The generator's seed: 31 bits that splits, generators, seeds and attempts do not share.

    Generators seed each entry with seed + index, so neighbouring seeds would give the same entries, one place on.
    """
    text = f"{split}\x1f{name}\x1f{seed}\x1f{attempt}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little") >> 1
