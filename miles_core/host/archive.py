"""Distributions inside a zip archive on the import path (a wheel put there unpacked by nobody)."""

from __future__ import annotations

import functools
import re
import zipfile
import zlib

_UNSOUND = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)
"""What zipfile raises for archives that are damaged or cut short; RuntimeError is for those that are encrypted, and
its subclass NotImplementedError for those packed in a way that it lacks."""

_FOLDER = re.compile(r"^([^/]+\.dist-info|EGG-INFO)/")


@functools.lru_cache(maxsize=64)
def _members(archive: str) -> frozenset[str]:
    with zipfile.ZipFile(archive) as opened:
        return frozenset(opened.namelist())


def metadata_folders(archive: str) -> list[str]:
    """Names of the `*.dist-info` folders at the archive's root; none when the file is no zip archive."""
    if not zipfile.is_zipfile(archive):
        return []
    try:
        names = _members(archive)
    except _UNSOUND as error:
        raise ValueError(f"not a sound zip archive: {error}") from error
    folders = {match.group(1) for match in map(_FOLDER.match, names) if match}
    return sorted(folder for folder in folders if folder.endswith(".dist-info"))


def read_member(location: str, file: str) -> bytes | None:
    """The file of `archive/folder`; None when it is not there. Raises ValueError for a damaged archive."""
    archive, _, folder = location.rpartition("/")
    member = f"{folder}/{file}"
    try:
        if member not in _members(archive):
            return None
        with zipfile.ZipFile(archive) as opened:
            return opened.read(member)
    except _UNSOUND as error:
        raise ValueError(f"not a sound zip archive: {error}") from error
