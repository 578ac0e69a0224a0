"""Damaged metadata of any installed distribution: what is wrong, which libraries it breaks, and who was hit by it.

Many libraries read the metadata of every distribution on the import path, through `importlib.metadata`, which lets one
damaged distribution end the reading of all. What each library does of each damage was tried, not guessed, on Python
3.11; the table says what was seen.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from miles_core.errors import MilesError, PluginError, Problem
from miles_core.host.found import (
    BAD_ENCODING,
    BAD_LINE,
    BAD_METADATA,
    NO_METADATA,
    NO_NAME,
    UNREADABLE,
    Damage,
    Damaged,
    Found,
    decoded,
    distributions,
)
from miles_core.host.scan import scan

BAD_REQUIREMENT = "bad-requirement"

_ENTRY_POINTS = frozenset({BAD_LINE, BAD_ENCODING})


class Reader(NamedTuple):
    """A library that reads the metadata of all distributions. `package` is its folder's name in a traceback; `when` it
    reads; `fails_on` are faults that end it; `off` switches the reading off, "" when nothing does."""

    name: str
    package: str
    when: str
    fails_on: frozenset[str]
    off: str = ""


READERS = (
    Reader("pydantic", "pydantic", "at the first model", _ENTRY_POINTS, "PYDANTIC_DISABLE_PLUGINS=1"),
    Reader("torch", "torch", "at import, for device backends", _ENTRY_POINTS, "TORCH_DEVICE_BACKEND_AUTOLOAD=0"),
    Reader("fsspec (so datasets)", "fsspec", "at import", frozenset({BAD_ENCODING})),
    Reader("stevedore", "stevedore", "in every manager", _ENTRY_POINTS),
    Reader("pluggy", "pluggy", "in load_setuptools_entrypoints (pytest with plugins on)", _ENTRY_POINTS),
    Reader("hypothesis", "hypothesis", "at import", _ENTRY_POINTS, "HYPOTHESIS_NO_PLUGINS=1"),
    Reader("setuptools (so pip install of a source folder)", "setuptools", "in every build", _ENTRY_POINTS),
    Reader("importlib.metadata.entry_points()", "importlib", "at every call", _ENTRY_POINTS),
    Reader("pip (list, freeze, check, install)", "pip", "at every call", frozenset({BAD_METADATA})),
    Reader("pip check", "pip", "at every call", frozenset({BAD_REQUIREMENT})),
    Reader(
        "code that asks importlib.metadata.distributions() for names or versions",
        "",
        "at every call",
        frozenset({NO_METADATA, NO_NAME, BAD_METADATA}),
    ),
)
"""transformers was tried too: it asks for the distributions that it knows by name, so it fails only through torch."""


_BEGINS = "Traceback (most recent call last):"
_METADATA = re.compile(r"(?:importlib[/\\]metadata|importlib_metadata)[/\\]\w+\.py$")
_READS_WITH = re.compile(r"(?:^<frozen |[/\\](?:codecs|pathlib(?:[/\\]\w+)?|zipfile(?:[/\\]\w+)?|email[/\\]\w+)\.py$)")


class DamagedMetadata(PluginError):
    """Something failed because of the metadata of a distribution that it has nothing to do with. Names it and the
    library that it breaks."""


def examine(path: Sequence[str] | None = None) -> tuple[Damage, ...]:
    """Everything that is wrong with metadata on the path, of every distribution. It reads more than a scan does."""
    found = list(scan(path).damaged)
    known = {damage.location for damage in found}
    for each in distributions(sys.path if path is None else path, []):
        if each.location not in known:
            found += _faults_of_metadata(each)
    return tuple(found)


def _faults_of_metadata(found: Found) -> Iterator[Damage]:
    file = "PKG-INFO" if found.is_egg else "METADATA"
    try:
        raw = found.read(file)
    except (OSError, ValueError) as error:
        yield Damage(found.name, found.location, UNREADABLE, f"{file} cannot be read: {error}", file)
        return
    if raw is None:
        if not found.is_egg:
            yield Damage(found.name, found.location, NO_METADATA, "has no METADATA: a broken installation")
        return
    try:
        text = decoded(raw, file)
    except Damaged as error:
        yield Damage(found.name, found.location, error.fault, error.text, file, error.line)
        return
    head = re.split(r"\r?\n\r?\n", text, maxsplit=1)[0]
    if not re.search(r"^Name:[ \t]*\S", head, re.MULTILINE):
        what = f"{file} is empty" if not raw.strip() else f"{file} names no distribution"
        yield Damage(found.name, found.location, NO_NAME, what, file)
    yield from _bad_requirements(found, file, head)


def _bad_requirements(found: Found, file: str, head: str) -> Iterator[Damage]:
    from packaging.requirements import InvalidRequirement, Requirement

    for number, line in enumerate(head.splitlines(), 1):
        if line.startswith("Requires-Dist:"):
            try:
                Requirement(line.partition(":")[2].strip())
            except InvalidRequirement:
                what = f"{file}:{number} has an unreadable requirement: {line.partition(':')[2].strip()!r}"
                yield Damage(found.name, found.location, BAD_REQUIREMENT, what, file, number)


def broken_by(damage: Damage, installed: Collection[str]) -> tuple[Reader, ...]:
    """The libraries that fail as long as this damage is on the path; of those that are packages, the installed ones."""
    here = {"", "importlib", *installed}
    return tuple(reader for reader in READERS if damage.fault in reader.fails_on and reader.package in here)


def mend_of(damage: Damage) -> str:
    """What ends it."""
    return f"pip install --force-reinstall {damage.distribution}, or delete {damage.location}"


def explain(error: BaseException) -> Problem | None:
    """The damaged distribution that an error is due to, and the library that it breaks; None when it is none of that.

    Goes by the traceback, also by one that a worker sent as text: it must lead through `importlib.metadata`, and there
    must be a distribution on the path whose damage ends that.
    """
    text = "".join(traceback.format_exception(error)) + _from_workers(error)
    outer = next(filter(None, map(_callers_of_reading, text.split(_BEGINS))), None)
    if outer is None:
        return None
    reader = _reader_of(outer)
    culprits = [damage for damage in examine() if damage.fault in reader.fails_on]
    if not culprits:
        return None
    damage = culprits[0]
    others = f" (and {len(culprits) - 1} more: miles plugins doctor)" if len(culprits) > 1 else ""
    off = f"; until then {reader.off} keeps {reader.name} from reading it" if reader.off else ""
    return Problem(
        f"{reader.name} reads the metadata of every installed distribution ({reader.when}) and fails on "
        f"the distribution {damage.distribution}, which is damaged: {damage.text}{others}",
        where=str(Path(damage.location, damage.file)) if damage.file else damage.location,
        mend=mend_of(damage) + off,
    )


def _from_workers(error: BaseException | None) -> str:
    """The tracebacks that came with an error and its causes from other processes."""
    text = ""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # a plugin may raise an error from itself
        seen.add(id(error))
        text += getattr(error, "origin", "")
        error = error.__cause__ or error.__context__
    return text


def explained(error: BaseException) -> BaseException:
    """The error itself, or a DamagedMetadata before it that says what it is due to."""
    if isinstance(error, DamagedMetadata | KeyboardInterrupt):
        return error
    problem = explain(error)
    if problem is None:
        return error
    if isinstance(error, MilesError):
        before = [Problem(each.what, each.where) for each in error.problems]  # their mends would mislead
    else:
        before = [Problem(f"{type(error).__name__}: {error}")]
    told = DamagedMetadata([problem, *before])
    told.origin = _from_workers(error)
    return told


def _callers_of_reading(segment: str) -> list[str] | None:
    """The files of the frames outside `importlib.metadata` when one traceback ends in it or in what it reads with; None
    when it ends elsewhere, or only says that a distribution is not installed."""
    files = re.findall(r'File "([^"]+)", line \d+', segment)
    inner = [place for place, file in enumerate(files) if _METADATA.search(file)]
    if not inner or re.search(r"^\S*(?:PackageNotFoundError|StopIteration)", segment, re.MULTILINE):
        return None
    read_with = all(_METADATA.search(file) or _READS_WITH.search(file) for file in files[inner[0] :])
    return (files[: inner[0]] or [""]) if read_with else None


def _reader_of(outer: Sequence[str]) -> Reader:
    """The library whose code called `importlib.metadata`, told by the innermost frame outside of it."""
    package = re.split(r"[/\\](?:site|dist)-packages[/\\]", outer[-1])[-1]
    top = re.split(r"[/\\]|\.py$", package, maxsplit=1)[0]
    for reader in READERS:
        if reader.package and reader.package == top:
            return reader
    name = f"{top or Path(outer[-1]).name} (through importlib.metadata)" if package else "importlib.metadata"
    return Reader(name, top, "when it was called", _ENTRY_POINTS | {NO_METADATA, NO_NAME, BAD_METADATA})
