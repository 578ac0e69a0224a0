"""Making attempts: a generator with all it needs bound, and its failures told apart."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

from miles_core.contracts.blame import place_of, text_of
from miles_core.contracts.rollout import Attempt, GenerateContext, Generator
from miles_core.errors import PluginError, RequestError, RunError
from miles_core.rollout.agent import AGENT
from miles_core.rollout.together import is_our_end
from miles_core.types.trajectory import Status, Trajectory

log = logging.getLogger(__name__)

LOGGED = 3
"""Failed attempts that are logged; `metadata` of every failed trajectory says why."""


class AttemptMaker:
    """Calls the generator. A wrong request, a broken plugin or a dead worker ends the run; any other exception is this
    attempt's failure: the trajectory says its class, text and place, and the first few are logged.

    `whose` names the generator, and what is wrapped around it, for errors.
    """

    def __init__(self, generator: Generator, context: GenerateContext, whose: str = "the generator") -> None:
        self._generator = generator
        self._context = context
        self._whose = whose
        self._failures = 0

    async def __call__(self, attempt: Attempt) -> Trajectory:
        try:
            return self._checked(await self._generator.generate(attempt, self._context))
        except (RequestError, PluginError, RunError) as error:
            if not getattr(error, "__notes__", None):  # a dead worker fails all that wait for it with one error
                error.add_note(f"while making attempt {attempt.id} at task {attempt.task.id!r}")
            raise
        except BaseException as error:  # a generator is a plugin: its failure is data here, and counted
            if is_our_end(error):
                raise
            text = text_of(error)
            if place := place_of(error):
                text += f" ({place})"
            self._log(attempt, text)
            return Trajectory(
                id=attempt.id,
                task_id=attempt.task.id,
                index=attempt.index,
                sequences=(),
                status=Status.FAILED,
                metadata={"error": text},
            )

    def _checked(self, made: object) -> Trajectory:
        if not isinstance(made, Trajectory):
            raise PluginError(
                f"{self._whose} gave {made!r:.80}, expected a Trajectory",
                mend="return what `generate` made; in middleware, `await` the inner generator",
            )
        try:
            json.dumps(made.metadata)
        except (TypeError, ValueError, RecursionError) as error:  # the run's folder keeps it as JSON
            raise TypeError(f"the trajectory's metadata is no JSON data: {error}") from error
        name = self._context.agent_name
        if name and name in made.scores and AGENT not in made.metadata:  # whichever generator ran it
            return replace(made, metadata={AGENT: name, **made.metadata})
        return made

    def _log(self, attempt: Attempt, text: str) -> None:
        """The first with its traceback, a few in a line, the others only in the record of the run."""
        self._failures += 1
        if self._failures <= LOGGED:
            more = "; further failures are only counted" if self._failures == LOGGED else ""
            first = self._failures == 1
            log.warning("attempt %s at task %r failed: %s%s", attempt.id, attempt.task.id, text, more, exc_info=first)
