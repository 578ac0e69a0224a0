"""The `command` agent: any program that speaks OpenAI's or Anthropic's chat, unmodified.

    agent: {use: command, run: [python, my_agent.py]}

Each episode is one process. It finds its session in MILES_BASE_URL (with `/v1`) and MILES_API_KEY, and in the variables
that the official clients read (OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY); and the task,
as one JSON object, on standard input and in the file MILES_TASK. The last line that it prints may be a JSON object:
`reward` (a number, or null) is its verdict, the other keys are kept as the outcome's metadata.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import Field, PositiveInt

from miles_core.contracts.component import BuildContext
from miles_core.contracts.last_words import last_words
from miles_core.contracts.options import Options
from miles_core.contracts.rollout import Episode, Outcome
from miles_core.errors import RequestError

LAST_BYTES = 65_536
"""How much of the end of a program's output is looked at for its last line."""

TERM_SECONDS = 1.0
"""What a program that is told to end gets for cleaning up, before it is killed."""


class ProgramFailed(Exception):
    """A program that did not end by itself with exit code 0."""


class CommandOptions(Options):
    """Which program, and for how long."""

    run: tuple[str, ...] = Field(min_length=1, description="the program and its arguments; `python` is this Python")
    seconds: float | None = Field(default=None, gt=0, description="time limit of one process; absent: the generator's")
    concurrent: PositiveInt = Field(default=16, description="processes at once; other episodes wait")
    folder: Path | None = Field(default=None, description="working directory of the program; absent: that of the run")
    environment: Mapping[str, str] = Field(default_factory=dict, description="more variables")


class CommandAgent:
    """See `contracts.rollout.Agent`. A process is the leader of a group; the whole group is ended with it."""

    def __init__(self, options: CommandOptions, context: BuildContext | None = None) -> None:
        """Raises RequestError when there is no such program or folder."""
        first, *others = options.run
        found = sys.executable if first in ("python", "python3") else shutil.which(first)
        if found is None:
            raise RequestError(f"there is no program {first!r}", where="agent.run", mend="install it, or give its path")
        if options.folder is not None and not options.folder.is_dir():
            raise RequestError(f"there is no folder {options.folder}", where="agent.folder")
        self._options = options
        self._program = (found, *others)
        self._places = asyncio.Semaphore(options.concurrent)

    async def run(self, episode: Episode) -> Outcome:
        """Raises ProgramFailed, with the last lines of the program's errors, for another exit code than 0, for one that
        had to be killed and for a reward that is no number."""
        async with self._places:
            with TemporaryDirectory(prefix="miles-agent-") as scratch:
                folder = Path(scratch)
                code, why = await self._process(episode, folder)
                said, complained = _end_of(folder / "stdout"), _end_of(folder / "stderr")
                name = shlex.join(self._options.run)
                if code != 0:
                    ended = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
                    ended += why
                    last = last_words(complained, (folder / "stderr").stat().st_size)
                    raise ProgramFailed(f"`{name}` {ended}{f': {last}' if last else ''}")
                if len(said.encode()) >= LAST_BYTES and "\n" not in said.strip():
                    raise ProgramFailed(f"the last line of `{name}` is longer than {LAST_BYTES} bytes: no verdict")
                return _outcome(said, name)

    async def _process(self, episode: Episode, folder: Path) -> tuple[int, str]:
        """The exit code, and why it was ended, in words, if it was. Files instead of pipes: whatever the program's
        descendants keep open, nobody waits for it."""
        task = folder / "task.json"
        task.write_text(json.dumps(episode.task.to_data()), encoding="utf-8")
        with task.open("rb") as given, (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            process = await asyncio.create_subprocess_exec(
                *self._program,
                stdin=given,
                stdout=out,
                stderr=err,
                cwd=self._options.folder,
                env={**_environment(episode, task), **self._options.environment},
                start_new_session=True,
            )
        try:
            return await self._until_ended(process, episode)
        finally:
            _signal(process, signal.SIGKILL)
            await process.wait()

    async def _until_ended(self, process: asyncio.subprocess.Process, episode: Episode) -> tuple[int, str]:
        why = ""
        ended = asyncio.ensure_future(process.wait())
        told = asyncio.ensure_future(episode.cancelled.wait())
        try:
            await asyncio.wait({ended, told}, timeout=self._options.seconds, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                why = ", after it was told to stop" if told.done() else f", after {self._options.seconds:g} seconds"
                _signal(process, signal.SIGTERM)
                await asyncio.wait({ended}, timeout=TERM_SECONDS)
            if not ended.done():
                _signal(process, signal.SIGKILL)
            return await ended, why
        finally:
            ended.cancel()
            told.cancel()
            await asyncio.gather(ended, told, return_exceptions=True)


def _environment(episode: Episode, task: Path) -> dict[str, str]:
    """The driver's own, with the session in it. Anthropic's client adds `/v1` itself. A proxy is not asked for an
    address of this machine, and no other key of the person's own is left for a client to prefer."""
    root = episode.base_url.removesuffix("/v1")
    local = ",".join(filter(None, [os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), "127.0.0.1", "localhost"]))
    kept = {key: value for key, value in os.environ.items() if key != "ANTHROPIC_AUTH_TOKEN"}
    return {
        **kept,
        "MILES_BASE_URL": episode.base_url,
        "MILES_API_KEY": episode.api_key,
        "MILES_TASK": str(task),
        "OPENAI_BASE_URL": episode.base_url,
        "OPENAI_API_KEY": episode.api_key,
        "ANTHROPIC_BASE_URL": root,
        "ANTHROPIC_API_KEY": episode.api_key,
        "NO_PROXY": local,
        "no_proxy": local,
    }


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """To the process and its descendants; those may live on when it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _end_of(file: Path) -> str:
    if not file.exists():
        return ""
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - LAST_BYTES))
        return stream.read().decode(errors="replace")


def _outcome(said: str, name: str) -> Outcome:
    lines = said.strip().split("\n")  # other line ends may stand inside JSON text
    try:
        verdict: Any = json.loads(lines[-1])
    except (ValueError, RecursionError):
        return Outcome()
    if not isinstance(verdict, dict):
        return Outcome()
    reward = verdict.pop("reward", None)
    if reward is not None and (isinstance(reward, bool) or not isinstance(reward, int | float)):
        raise ProgramFailed(f"`{name}` says the reward {reward!r:.40}, expected a number or null")
    return Outcome(None if reward is None else float(reward), verdict)
