"""Fresh interpreters that are asked about all components of a plugin at once, since each of them costs a start."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from miles_core.contracts.component import KINDS, BuildContext
from miles_core.host.registry import Registered, Registry
from miles_core.testing.kit.apart import Ended, python
from miles_core.testing.kit.materials import lay_out
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.testing.kit.surroundings import surroundings

HEAVY = ("torch", "ray", "transformers", "vllm", "sglang", "tensorflow", "jax")

ENDS = "(the end of the process)"
"""In place of a package, where importing ended the interpreter."""

MARK = "miles-kit:"
"""Begins the lines of an answer: code under test may print as well."""

_IMPORT_OPTIONS = f"""
import importlib, json, sys
for path in json.loads(sys.argv[1]):
    module, _, _ = path.partition(":")
    try:
        importlib.import_module(module)
    except BaseException as error:
        pass
    heavy = [name for name in {HEAVY!r} if name in sys.modules]
    print({MARK!r} + json.dumps([path, heavy]), flush=True)
    if heavy:
        break
"""

_BUILD = f"""
import json, os, pickle, sys
work = pickle.load(sys.stdin.buffer)
from miles_core.testing.kit.worker_side import build
for sent in work:
    label, ref, context = pickle.loads(sent)
    print({MARK!r} + json.dumps([label, build(ref, context)]), flush=True)
os._exit(0)
"""


@dataclass(frozen=True, slots=True)
class Built:
    """What came of building a component in a worker. `error` is "" when it was built; `differences` are pairs (what is
    different from the Protocol, what to write instead)."""

    error: str
    differences: tuple[tuple[str, str], ...] = ()


_options: WeakKeyDictionary[Registry, dict[str, tuple[str, ...]]] = WeakKeyDictionary()
_built: WeakKeyDictionary[Registry, dict[str, Built]] = WeakKeyDictionary()


def options_imports(subject: ComponentSubject) -> Mapping[str, tuple[str, ...]]:
    """Of each options path of the subject's plugin: which heavy packages its module imports."""
    if subject.registry not in _options:
        paths = list(dict.fromkeys(each.component.options for each in _components(subject)))
        _options[subject.registry] = _import_each(paths)
    return _options[subject.registry]


def built_in_a_worker(subject: ComponentSubject) -> Built:
    """The component, built in a process that was sent it by value, with the others of its plugin."""
    known = _built.setdefault(subject.registry, {})
    if subject.label not in known:
        subjects = [subject.beside(each) for each in _components(subject)]
        known.update(_build_each([each for each in subjects if _is_valid(each)], subject.folder / "worker"))
    return known[subject.label]


def _components(subject: ComponentSubject) -> list[Registered]:
    return [each for kind in KINDS for each in subject.registry.components(kind) if each.plugin == subject.plugin]


def _import_each(paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """One process for all of them, and another after each that is heavy."""
    found: dict[str, tuple[str, ...]] = {}
    left = list(paths)
    while left:
        answers = _answers(python(_IMPORT_OPTIONS, json.dumps(left)))
        if not answers:
            answers = [[left[0], [ENDS]]]
        for path, heavy in answers:
            found[path] = tuple(heavy)
        left = [path for path in left if path not in found]
    return found


def _is_valid(subject: ComponentSubject) -> bool:
    try:
        subject.options()
    except Exception:  # another check tells its author
        return False
    return subject.registered.kind not in WITHOUT_OBJECTS


WITHOUT_OBJECTS = ("recipe",)


def _build_each(subjects: Sequence[ComponentSubject], here: Path) -> dict[str, Built]:
    """One process for all of them, and another after each that ends it."""
    found: dict[str, Built] = {}
    work: dict[str, bytes] = {}
    for subject in subjects:
        lay_out(here, subject.example)
        own = here / "runs" / subject.label
        own.mkdir(parents=True)
        model, parts = surroundings(subject, own)
        try:
            context = BuildContext(1, subject.label, own, model, parts)
            work[subject.label] = pickle.dumps((subject.label, subject.ref(), context))
        except Exception as error:
            found[subject.label] = Built(f"it does not pickle: {type(error).__name__}: {error}")
    while work:
        ended = python(_BUILD, stdin=pickle.dumps(list(work.values())), folder=here)
        for label, answer in _answers(ended):
            found[label] = Built(answer["error"], tuple((what, mend) for what, mend in answer["differences"]))
            del work[label]
        if work:
            label = next(iter(work))
            found[label] = Built(f"the process ended with status {ended.status}: {ended.last_words}")
            del work[label]
    return found


def _answers(ended: Ended) -> list[Any]:
    lines = ended.output.splitlines()
    return [json.loads(line.removeprefix(MARK)) for line in lines if line.startswith(MARK)]
