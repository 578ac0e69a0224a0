"""Making a plugin's folder: refused as a whole with every reason, or made as a whole."""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from miles_core.contracts.component import KINDS
from miles_core.errors import Problem, RequestError
from miles_core.host.scan import Index
from miles_core.scaffold.names import Names
from miles_core.scaffold.render import class_problems, render


def make(written: str, kind: str, to: Path | None, index: Index) -> tuple[Names, Path, tuple[str, ...]]:
    """Write a plugin named `written` of one kind into the folder `to`, which must not exist yet.

    Returns its names, its folder and the files in it. Raises RequestError with every reason against it; then nothing
    was written.
    """
    names = Names.of(written)
    name_problems = names.problems(index)
    folder = to if to is not None else Path(names.distribution)
    kind_problems = _kind_problems(kind)
    problems = [*name_problems, *kind_problems]
    if not name_problems and not kind_problems:
        problems += class_problems(kind, names)
    if to is not None or not name_problems:
        problems += _place_problems(folder)
    if problems:
        raise RequestError(problems)
    files = render(kind, names)
    try:
        _write(folder, files)
    except OSError as error:
        raise RequestError(f"cannot be written: {error.strerror or error}", where=str(folder)) from error
    return names, folder, tuple(files)


def _kind_problems(kind: str) -> list[Problem]:
    if kind in KINDS:
        return []
    near = difflib.get_close_matches(kind, KINDS, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return [Problem(f"there is no kind {kind!r}", "--kind", f"{hint}the kinds are: {', '.join(KINDS)}")]


def _place_problems(folder: Path) -> list[Problem]:
    if (folder / "pyproject.toml").is_file():
        mend = f"pip install --no-build-isolation --no-deps -e {folder}; or name another folder with --to"
        return [Problem("is there already: the source of a package that was made before", str(folder), mend)]
    if folder.exists() or folder.is_symlink():
        return [Problem("is there already", str(folder), "name another folder with --to")]
    if not folder.parent.is_dir():
        return [Problem("the folder to make it in is not there", str(folder.parent), "make it first, or correct --to")]
    return []


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """All files, or nothing: they are written beside the place and moved there."""
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    draft.mkdir()
    try:
        for place, text in files.items():
            file = draft / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        draft.rename(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
