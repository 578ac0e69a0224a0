"""Broken runtimes: each check catches what it is for. The good one starts real processes."""

from __future__ import annotations

import pytest
from trying import try_check

from miles_core.errors import WorkerDied
from miles_core.runtime.in_process import InProcessHandle, InProcessRuntime
from miles_core.runtime.local import LocalOptions, LocalRuntime
from miles_core.testing.kit.check import CheckResult


class NotStarted(InProcessRuntime):
    async def start(self, ref, context):
        handle = await super().start(ref, context)
        handle._component._started = False
        return handle


class Renaming(InProcessRuntime):
    async def start(self, ref, context):
        handle = await super().start(ref, context)
        handle._name = "worker"
        return handle


class _Blurred(InProcessHandle):
    async def call(self, method, *args):
        try:
            return await super().call(method, *args)
        except Exception as error:
            raise OSError("remote error") from error


class Blurring(InProcessRuntime):
    async def start(self, ref, context):
        handle = await super().start(ref, context)
        handle.__class__ = _Blurred
        return handle


class BuildsLater(InProcessRuntime):
    async def start(self, ref, context):
        try:
            return await super().start(ref, context)
        except Exception:
            return _Blurred(context.name, None, None)


class _Elsewhere(InProcessHandle):
    """Says that it lives in another process, and outlives its death."""

    async def call(self, method, *args):
        if method == "die":
            return None
        found = await super().call(method, *args)
        return (0, *found[1:]) if method == "where" else found


class Undead(InProcessRuntime):
    async def start(self, ref, context):
        handle = await super().start(ref, context)
        handle.__class__ = _Elsewhere
        return handle


class _Open(InProcessHandle):
    async def close(self):
        pass


class StaysOpen(InProcessRuntime):
    async def start(self, ref, context):
        handle = await super().start(ref, context)
        handle.__class__ = _Open
        return handle


class Lone(InProcessRuntime):
    there = False

    def __init__(self, options, context):
        if Lone.there:
            raise RuntimeError("there is one already")
        Lone.there = True
        super().__init__(options, context)


class Forgetless(LocalRuntime):
    """A name that was given once is taken for ever."""

    def __init__(self, options, context):
        super().__init__(LocalOptions(), context)
        self._taken = set()

    async def start(self, ref, context):
        if context.name in self._taken:
            raise RuntimeError(f"there was a {context.name!r} already")
        self._taken.add(context.name)
        return await super().start(ref, context)


BROKEN = [
    ("runtime/starts-components", NotStarted),
    ("runtime/starts-components", Renaming),
    ("runtime/calls-cross", Blurring),
    ("runtime/build-failures", BuildsLater),
    ("runtime/deaths", Undead),
    ("runtime/starts-again", Forgetless),
    ("runtime/hosts-a-driver", Lone),
    ("runtime/leaves-no-process", StaysOpen),
]


@pytest.mark.parametrize(("check_id", "factory"), BROKEN)
def test_a_broken_one_is_caught(check_id, factory):
    finding = try_check(check_id, factory)
    assert finding.result is CheckResult.FAILED, finding
    assert finding.detail


def test_a_runtime_in_this_process_cannot_lose_one():
    assert try_check("runtime/deaths", InProcessRuntime).result is CheckResult.INAPPLICABLE
    assert WorkerDied
