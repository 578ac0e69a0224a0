"""The in-process runtime, for tests and debuggers: components live in this process, behind the same handle."""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from miles_core.contracts.component import BuildContext, ComponentRef
from miles_core.contracts.options import NoOptions
from miles_core.errors import WorkerDied


class InProcessHandle:
    """One component in this process. Plain methods compute in a thread of their own, as in a worker."""

    def __init__(self, name: str, component: Any, compute: ThreadPoolExecutor) -> None:
        self._name = name
        self._component = component
        self._compute = compute
        self._alive = True

    @property
    def name(self) -> str:
        return self._name

    @property
    def alive(self) -> bool:
        return self._alive

    async def call(self, method: str, *args: Any) -> Any:
        if not self._alive:
            raise WorkerDied(f"worker {self._name!r} was closed")
        function = getattr(self._component, method)
        if inspect.iscoroutinefunction(function):
            return await function(*args)
        return await asyncio.get_running_loop().run_in_executor(self._compute, function, *args)

    async def close(self) -> None:
        if not self._alive:
            return
        if hasattr(self._component, "close"):
            await self.call("close")
        self._alive = False
        self._compute.shutdown()


class InProcessRuntime:
    """Builds components right here."""

    def __init__(self, options: NoOptions, context: BuildContext) -> None:
        self._handles: list[InProcessHandle] = []
        self._building = asyncio.Lock()  # libraries that import themselves lazily cannot bear two threads doing it

    async def start(self, ref: ComponentRef, context: BuildContext) -> InProcessHandle:
        compute = ThreadPoolExecutor(1, thread_name_prefix=context.name)
        async with self._building:
            component = await asyncio.get_running_loop().run_in_executor(compute, ref.build, context)
        handle = InProcessHandle(context.name, component, compute)
        self._handles.append(handle)
        if hasattr(component, "start"):
            await component.start()
        return handle

    async def close(self) -> None:
        for handle in self._handles:
            await handle.close()
        self._handles.clear()
