"""A component to start in a runtime: says where it lives, fails, waits and dies on request."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from miles_core.contracts.component import BuildContext, ComponentRef
from miles_core.contracts.options import Options
from miles_core.errors import RequestError

FAILS_TO_BUILD = "fails to build"


class ProbeOptions(Options):
    """What it says."""

    word: str = "here"


class Probe:
    """Built in a process of the runtime."""

    def __init__(self, options: ProbeOptions, context: BuildContext) -> None:
        if options.word == FAILS_TO_BUILD:
            raise RequestError("the probe cannot be built", mend="give it another word")
        self._word = options.word
        self._name = context.name
        self._started = False

    async def start(self) -> None:
        self._started = True

    def where(self) -> tuple[int, str, str, bool]:
        """Process, word, name, and whether it was started."""
        return os.getpid(), self._word, self._name, self._started

    async def echo(self, value: Any) -> Any:
        await asyncio.sleep(0)
        return value

    def fail(self, text: str) -> None:
        raise RequestError(text, where="the probe", mend="nothing")

    async def wait(self) -> None:
        await asyncio.Event().wait()

    async def host(self, runtime: ComponentRef, folder: Path | None) -> int:
        """Build the runtime here, as a driver in a worker does, and start a probe by it: the process of that."""
        self._hosted = runtime.build(BuildContext(1, f"runtime-{runtime.name}", folder))
        handle = await self._hosted.start(probe("nested"), BuildContext(1, "nested", folder))
        process, word, *_ = await handle.call("where")
        if word != "nested" or await handle.call("echo", "deep") != "deep":
            raise RequestError("a probe that a probe started does not answer as told")
        return int(process)

    def die(self) -> None:
        os._exit(7)

    async def close(self) -> None:
        self._started = False


def probe(word: str = "here") -> ComponentRef:
    """The probe by value."""
    home = __name__
    return ComponentRef("engine", "probe", f"{home}:Probe", f"{home}:ProbeOptions", {"word": word}, "", "")
