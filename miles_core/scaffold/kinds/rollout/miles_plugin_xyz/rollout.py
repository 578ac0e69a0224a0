"""A rollout that refills at once."""

import asyncio
from collections.abc import Mapping
from typing import Any

from miles_core import Attempt, BuildContext, Draw, Group, RolloutContext, RunError, Status

from miles_plugin_xyz.options import XyzOptions


class XyzRollout:
    """One task of the event loop starts groups, each group is a task of its own. See `miles_core.Rollout`."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._options = options
        self._next_number = 0
        self._granted = 0
        self._dropped_in_a_row = 0
        self._running: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._starting: asyncio.Task[None] | None = None

    async def start(self, context: RolloutContext) -> None:
        self._context = context
        self._starting = asyncio.create_task(self._start_groups(), name="rollout xyz")

    def grant(self, groups: int) -> None:
        self._granted += groups
        self._wake.set()

    async def drain(self) -> None:
        self._granted = 0
        while self._running:
            await asyncio.wait(self._running)
            self._granted = 0  # a dropped group is not replaced any more

    def state(self) -> Mapping[str, Any]:
        return {"next_number": self._next_number}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._next_number = int(state["next_number"])

    async def close(self) -> None:
        tasks = [*self._running, *([self._starting] if self._starting else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _start_groups(self) -> None:
        try:
            while True:
                while self._granted and len(self._running) < self._options.in_flight:
                    draw = self._context.data.draw()
                    if draw is None:
                        await asyncio.gather(*self._running)
                        self._context.buffer.end()
                        return
                    self._start(draw)
                self._wake.clear()
                await self._wake.wait()
        except Exception as error:
            self._fail(error)

    def _start(self, draw: Draw) -> None:
        task = asyncio.create_task(self._make(self._next_number, draw))
        self._next_number += 1
        self._granted -= 1
        self._running.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._wake.set()
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Stop all work. The driver gets the error from the buffer, where it waits."""
        for task in self._running:
            task.cancel()
        if self._starting is not None:
            self._starting.cancel()
        self._context.buffer.end(error)

    async def _make(self, number: int, draw: Draw) -> None:
        """Attempts, score, buffer. A group that the buffer drops is replaced by another."""
        context = self._context
        attempts = [
            Attempt(
                f"g{number}.{index}", draw.task, number, draw.draw, index, "rollout", context.sampling, context.seed
            )
            for index in range(context.group_size)
        ]
        trajectories = await asyncio.gather(*(context.generate(attempt) for attempt in attempts))
        group = await context.score(Group(draw.task, number, draw.draw, tuple(trajectories)))
        if all(trajectory.status is Status.FAILED for trajectory in trajectories):
            raise RunError(f"every attempt at task {draw.task.id!r} failed", mend="the log of the run says why")
        verdict = await context.buffer.put(group)
        rewards = [trajectory.reward for trajectory in group.trajectories if trajectory.reward is not None]
        context.events.emit(
            "group_finished",
            group=group.id,
            task=draw.task.id,
            disposition="buffered" if verdict.keep else verdict.reason,
            reward=sum(rewards) / len(rewards) if rewards else None,
        )
        self._count(verdict.keep, verdict.reason)

    def _count(self, kept: bool, reason: str) -> None:
        self._dropped_in_a_row = 0 if kept else self._dropped_in_a_row + 1
        self._granted += not kept
        if self._dropped_in_a_row >= self._options.patience:
            raise RunError(
                f"{self._dropped_in_a_row} groups in a row were dropped, the last one as {reason}",
                mend="choose tasks that the model sometimes solves, a graded reward, or another filter",
            )
