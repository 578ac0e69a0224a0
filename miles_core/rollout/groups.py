"""The `groups` rollout: makes as many kept groups as it was granted, round by round.

A round starts all granted groups at once. Groups that the buffer rejects are replaced in the next round, when the
round has ended: what an engine computes together then depends on the tasks alone and not on timing, so a synchronous
run is reproducible to the last bit. (A schedule that must never wait uses a rollout that refills slot by slot.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from miles_core.contracts.component import BuildContext
from miles_core.contracts.options import Options
from miles_core.contracts.rollout import Attempt, Draw, RolloutContext, Verdict
from miles_core.errors import PluginError, RunError
from miles_core.rollout.together import is_our_end, together
from miles_core.types.trajectory import Group, Status

PURPOSE = "rollout"
"""Separates the randomness of training from that of evaluations."""


class GroupsOptions(Options):
    """When to give up."""

    fruitless_rounds: int = Field(
        default=50, gt=0, description="rounds in a row without one kept group after which the run stops"
    )


class GroupsRollout:
    """See `contracts.rollout.Rollout`."""

    def __init__(self, options: GroupsOptions, context: BuildContext) -> None:
        self._options = options
        self._next_number = 0
        self._granted = 0
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    async def start(self, context: RolloutContext) -> None:
        self._context = context
        self._task = asyncio.create_task(self._run(), name="rollout")

    def grant(self, groups: int) -> None:
        self._granted += groups
        self._wake.set()

    async def drain(self) -> None:
        self._granted = 0
        await self._idle.wait()

    def state(self) -> Mapping[str, Any]:
        return {"next_number": self._next_number}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._next_number = state["next_number"]

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while await self._serve_grant():
                pass
            self._context.buffer.end()
        except BaseException as error:  # the driver gets it from the buffer, where it waits
            if is_our_end(error):
                raise
            self._context.buffer.end(error if isinstance(error, Exception) else _unusual(error))
        finally:
            self._idle.set()

    async def _serve_grant(self) -> bool:
        """Make the granted groups; False when the data ended."""
        await self._wake.wait()
        self._wake.clear()
        wanted, self._granted = self._granted, 0
        self._idle.clear()
        fruitless = 0
        while wanted:
            draws = self._draw(wanted)
            verdicts = await together(self._make(draw) for draw in draws)
            kept = sum(verdict.keep for verdict in verdicts)
            wanted -= kept
            fruitless = 0 if kept else fruitless + 1
            if draws and fruitless >= self._options.fruitless_rounds:
                raise _fruitless(fruitless, verdicts)
            if wanted and len(draws) < wanted + kept:
                return False
        self._idle.set()
        return True

    def _draw(self, wanted: int) -> list[tuple[int, Draw]]:
        draws = []
        for _ in range(wanted):
            draw = self._context.data.draw()
            if draw is None:
                break
            draws.append((self._next_number, draw))
            self._next_number += 1
        return draws

    async def _make(self, numbered: tuple[int, Draw]) -> Verdict:
        number, draw = numbered
        context = self._context
        attempts = [
            Attempt(
                f"g{number}.{index}", draw.task, number, draw.draw, index, "rollout", context.sampling, context.seed
            )
            for index in range(context.group_size)
        ]
        trajectories = await together(context.generate(attempt) for attempt in attempts)
        group = await context.score(Group(draw.task, number, draw.draw, tuple(trajectories)))
        verdict = await self._put(group)
        rewards = [t.reward for t in group.trajectories if t.reward is not None]
        context.events.emit(
            "group_finished",
            group=group.id,
            task=draw.task.id,
            disposition="buffered" if verdict.keep else verdict.reason,
            reward=sum(rewards) / len(rewards) if rewards else None,
        )
        return verdict

    async def _put(self, group: Group) -> Verdict:
        failures = [t for t in group.trajectories if t.status is Status.FAILED]
        if len(failures) == len(group.trajectories):
            raise RunError(
                f"every attempt at task {group.task.id!r} failed; the first: {failures[0].metadata.get('error')}",
                where=f"group {group.id}",
                mend="the log of the run has the traceback",
            )
        return await self._context.buffer.put(group)


def _unusual(error: BaseException) -> PluginError:
    """What data, a filter or a buffer raised although it is no Exception, such as SystemExit."""
    return PluginError(f"a plugin raised {type(error).__name__}: {error}", where="rollout", mend="raise an Exception")


def _fruitless(rounds: int, verdicts: list[Verdict]) -> RunError:
    reasons = sorted({verdict.reason for verdict in verdicts})
    return RunError(
        f"{rounds} rounds in a row gave no group to train on; the last were dropped as: {', '.join(reasons)}",
        mend="choose tasks that the model sometimes solves, a graded reward, or another filter",
    )
