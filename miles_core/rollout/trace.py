"""The `trace` middleware: one line for each attempt, `trace.jsonl` in the run's folder.

The first line is a header, `{"format": "miles.trace", "version": 1}`. A resumed run goes on in the same file; attempts
that it makes again are there twice.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from pydantic import Field

from miles_core.contracts.component import BuildContext
from miles_core.contracts.middleware import GeneratorMiddleware
from miles_core.contracts.options import Options
from miles_core.contracts.rollout import Attempt, GenerateContext
from miles_core.observe.atomic import refusals
from miles_core.types.trajectory import Status, Trajectory

HEADER = {"format": "miles.trace", "version": 1}


class TraceOptions(Options):
    """Where to write."""

    file: str = Field(
        default="trace.jsonl", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="name of a file in the run's folder"
    )


class Trace(GeneratorMiddleware):
    """Times every attempt. One that raises is written as `failed`, with what it raised, or as `cancelled`."""

    def __init__(self, options: TraceOptions, context: BuildContext) -> None:
        self._file = context.folder / options.file if context.folder is not None else None

    async def generate(self, attempt: Attempt, context: GenerateContext) -> Trajectory:
        began = context.clock.now()
        facts: dict[str, Any] = {"status": Status.FAILED.value, "tokens": 0}
        try:
            trajectory = await self.inner.generate(attempt, context)
            tokens = sum(sequence.sampled_count for sequence in trajectory.sequences)
            facts = {"status": trajectory.status.value, "tokens": tokens}
        except asyncio.CancelledError:
            facts["status"] = "cancelled"
            raise
        except BaseException as error:
            facts["error"] = f"{type(error).__name__}: {error}"
            raise
        finally:
            who = {"attempt": attempt.id, "task": attempt.task.id, "purpose": attempt.purpose}
            self._write({**who, "seconds": context.clock.now() - began, **facts})
        return trajectory

    def _write(self, record: dict[str, Any]) -> None:
        """Add a line. The file is opened for each: attempts take far longer, and nothing is left open at the end."""
        if self._file is None:
            return
        with refusals(self._file), self._file.open("a", encoding="utf-8") as file:
            lines = [HEADER, record] if file.tell() == 0 else [record]
            file.write("".join(json.dumps(line) + "\n" for line in lines))
