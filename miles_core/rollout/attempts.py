"""Making attempts: a generator with all it needs bound, and its failures told apart."""

from __future__ import annotations

import logging

from miles_core.contracts.rollout import Attempt, GenerateContext, Generator
from miles_core.errors import PluginError, RequestError, RunError
from miles_core.rollout.together import is_our_end
from miles_core.types.trajectory import Status, Trajectory

log = logging.getLogger(__name__)


class AttemptMaker:
    """Calls the generator. A wrong request, a broken plugin or a dead worker ends the run; any other exception is this
    attempt's failure: it is logged, and the trajectory says its class and text."""

    def __init__(self, generator: Generator, context: GenerateContext) -> None:
        self._generator = generator
        self._context = context

    async def __call__(self, attempt: Attempt) -> Trajectory:
        try:
            return await self._generator.generate(attempt, self._context)
        except (RequestError, PluginError, RunError) as error:
            if not getattr(error, "__notes__", None):  # a dead worker fails all that wait for it with one error
                error.add_note(f"while making attempt {attempt.id} at task {attempt.task.id!r}")
            raise
        except BaseException as error:  # a generator is a plugin: its failure is data here, and counted
            if is_our_end(error):
                raise
            log.warning("attempt %s at task %r failed", attempt.id, attempt.task.id, exc_info=True)
            return Trajectory(
                id=attempt.id,
                task_id=attempt.task.id,
                index=attempt.index,
                sequences=(),
                status=Status.FAILED,
                metadata={"error": f"{type(error).__name__}: {error}"},
            )
