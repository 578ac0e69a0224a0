"""Loading: in a process of its own, alone, at little cost, and without a trace in what belongs to the whole process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from miles_core.host.activate import open_registry
from miles_core.host.registry import Registry
from miles_core.testing.kit.apart import python
from miles_core.testing.kit.check import Grade, check, expect
from miles_core.testing.kit.probes import HEAVY, MARK
from miles_core.testing.kit.subject import PluginSubject

BUDGET_SECONDS = 0.05
"""CPU time that loading may cost over the core."""
TRIES = 5

_PROBE = f"""
import importlib, json, sys, time
import numpy, random, multiprocessing, locale, logging  # known before, so that importing them is no change
from miles_core.host.activate import open_registry
from miles_core.host.scan import scan
from miles_core.host.global_state import changes, snapshot
index = scan()
open_registry(["miles-core:core"], index)
name, module = sys.argv[1:]
error, seconds, before = "", 0.0, snapshot()
started = time.process_time()
try:
    importlib.import_module(module)
    open_registry([name], index)
except BaseException as failure:
    error = f"{{type(failure).__name__}}: {{failure}}"
seconds = time.process_time() - started
heavy = [name for name in {HEAVY!r} if name in sys.modules]
told = [f"{{what}} ({{how}})" for what, how in changes(before, snapshot()).items()]
print({MARK!r} + json.dumps([error, seconds, heavy, told]), flush=True)
import os; os._exit(0)
"""


@dataclass(frozen=True, slots=True)
class Loading:
    """What loading it alone in a fresh process came to."""

    error: str
    seconds: float
    heavy: tuple[str, ...]
    changed: tuple[str, ...]
    printed: str


_known: WeakKeyDictionary[Registry, Loading] = WeakKeyDictionary()


@check("", Grade.BRONZE, "it loads alone, in a process where nothing else was imported")
def loads_alone(subject: PluginSubject) -> None:
    found = _loading(subject)
    expect(not found.error, found.error, "let it import what it needs itself, and nothing of another plugin")


@check("", Grade.BRONZE, "loading it imports no torch, ray, transformers or the like")
def light_import(subject: PluginSubject) -> None:
    heavy = _loading(subject).heavy
    expect(
        not heavy,
        f"loading it imports {', '.join(heavy)}",
        'name factories and options as strings ("module:attr") and import nothing of them in the entry point\'s module',
    )


@check("", Grade.BRONZE, f"loading it costs less than {BUDGET_SECONDS * 1000:.0f} ms of CPU over the core")
def quick_import(subject: PluginSubject) -> None:
    best = _loading(subject).seconds
    for _ in range(TRIES - 1):
        if best < BUDGET_SECONDS:
            return
        best = min(best, _load(subject).seconds)
    expect(
        best < BUDGET_SECONDS,
        f"loading it costs {best * 1000:.0f} ms of CPU",
        f"import less in {subject.plugin.module}: see python -X importtime -c 'import {_module(subject)}'",
    )


@check("", Grade.BRONZE, "importing it changes nothing that belongs to the whole process")
def changes_no_global_state(subject: PluginSubject) -> None:
    changes = _loading(subject).changed
    expect(
        not changes,
        f"importing it changes {', '.join(changes)}",
        "do it in the factory, or not at all: other plugins and the run share the process",
    )


@check("", Grade.BRONZE, "importing it writes nothing to standard output")
def prints_nothing(subject: PluginSubject) -> None:
    printed = _loading(subject).printed
    expect(not printed, f"importing it prints {printed!r:.200}", "remove the print, or use logging")


@check("", Grade.BRONZE, "registering it twice gives the same components")
def registers_the_same_twice(subject: PluginSubject) -> None:
    again = open_registry([f"{subject.plugin.distribution}:{subject.plugin.name}"], subject.registry.index)
    ours = [each.component for each in subject.components]
    theirs = [
        component.component
        for first in subject.components
        for component in again.components(first.kind)
        if component.plugin == subject.plugin and component.component.name == first.component.name
    ]
    count = sum(each.plugin == subject.plugin for kind in _kinds(subject) for each in again.components(kind))
    expect(
        ours == theirs and count == len(ours),
        f"the first time it registered {[c.name for c in ours]}, then others",
        "let the registration hooks return constants: workers and resumed runs register again",
    )


def _kinds(subject: PluginSubject) -> list[str]:
    return list(dict.fromkeys(each.kind for each in subject.components))


def _module(subject: PluginSubject) -> str:
    return subject.plugin.module.partition(":")[0]


def _loading(subject: PluginSubject) -> Loading:
    if subject.registry not in _known:
        _known[subject.registry] = _load(subject)
    return _known[subject.registry]


def _load(subject: PluginSubject) -> Loading:
    ended = python(_PROBE, f"{subject.plugin.distribution}:{subject.plugin.name}", _module(subject))
    lines = ended.output.splitlines()
    answer: list[Any] = next((json.loads(line.removeprefix(MARK)) for line in lines if line.startswith(MARK)), [])
    printed = "\n".join(line for line in lines if not line.startswith(MARK))
    if not answer:
        return Loading(f"the process ended with status {ended.status}: {ended.last_words}", 0.0, (), (), printed)
    error, seconds, heavy, changes = answer
    return Loading(error, seconds, tuple(heavy), tuple(changes), printed)
