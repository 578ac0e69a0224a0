"""Everything in this process, timed."""

import asyncio
import csv
import inspect
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from miles_core import BuildContext, ComponentRef, WorkerDied

from miles_plugin_xyz.options import XyzOptions


class XyzHandle:
    """One component. Coroutines run here, plain methods in a thread of their own. See `miles_core.Handle`."""

    def __init__(self, name: str, component: Any, thread: ThreadPoolExecutor) -> None:
        self.name = name
        self.alive = True
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)
        self._component = component
        self._thread = thread

    async def call(self, method: str, *args: Any) -> Any:
        if not self.alive:
            raise WorkerDied(f"worker {self.name!r} was closed")
        function = getattr(self._component, method)
        began = time.perf_counter()
        try:
            if inspect.iscoroutinefunction(function):
                return await function(*args)
            return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)
        finally:
            self.seconds[method].append(time.perf_counter() - began)

    async def close(self) -> None:
        if not self.alive:
            return
        if hasattr(self._component, "close"):
            await self.call("close")
        self.alive = False
        self._thread.shutdown()


class XyzRuntime:
    """See `miles_core.Runtime`."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._file = (context.folder or Path()) / options.file
        self._handles: list[XyzHandle] = []

    async def start(self, ref: ComponentRef, context: BuildContext) -> XyzHandle:
        thread = ThreadPoolExecutor(1, thread_name_prefix=context.name)
        component = await asyncio.get_running_loop().run_in_executor(thread, ref.build, context)
        handle = XyzHandle(context.name, component, thread)
        self._handles.append(handle)
        if hasattr(component, "start"):
            await handle.call("start")
        return handle

    async def close(self) -> None:
        if not self._handles:
            return
        handles, self._handles = self._handles, []
        for handle in handles:
            await handle.close()
        with self._file.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(("worker", "method", "calls", "seconds"))
            for handle in handles:
                for method, seconds in sorted(handle.seconds.items()):
                    table.writerow((handle.name, method, len(seconds), f"{sum(seconds):.6f}"))
