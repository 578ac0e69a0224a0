"""Metadata folders on the import path, and what may be wrong with them. Nothing here is cached or imported.

Serves `miles plugins list`, so it imports nothing but a little of the standard library.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from miles_core.host.metadata import normalise


class Damage(NamedTuple):
    """What is wrong with the metadata of one distribution.

    fault    NO_METADATA; BAD_LINE or BAD_ENCODING of entry_points.txt; BAD_METADATA (no UTF-8), NO_NAME; UNREADABLE;
             `host.damage` knows which libraries fail on which
    file     the file that is damaged, "" for the whole folder; `line` counts from 1, 0 means no line
    text     what is wrong, for people
    plugin   a name for listings when the distribution seems to hold a plugin, else ""
    """

    distribution: str
    location: str
    fault: str
    text: str
    file: str = ""
    line: int = 0
    plugin: str = ""

    def __str__(self) -> str:
        return f"{os.path.basename(self.location)}: {self.text} ({self.location})"  # noqa: PTH119


NO_METADATA, BAD_LINE, BAD_ENCODING = "no-metadata", "bad-line", "bad-encoding"
BAD_METADATA, NO_NAME, UNREADABLE = "bad-metadata", "no-name", "unreadable"


class Damaged(Exception):
    """A metadata file that cannot be used: its fault, what is wrong with it, its name and line."""

    def __init__(self, fault: str, text: str, file: str, line: int = 0) -> None:
        super().__init__(text)
        self.fault, self.text, self.file, self.line = fault, text, file, line


def decoded(raw: bytes, file: str) -> str:
    """The text of a metadata file. Raises Damaged when it is not UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        fault = BAD_ENCODING if file == "entry_points.txt" else BAD_METADATA
        raise Damaged(fault, f"{file}:{line} is not UTF-8 ({error.reason})", file, line) from error


class Found(NamedTuple):
    """One metadata folder; `read` of its files gives None when the file is missing."""

    location: str
    folder: str
    zipped: bool = False

    @property
    def name(self) -> str:
        return normalise(self.folder.removesuffix(".dist-info").removesuffix(".egg-info").split("-", 1)[0])

    @property
    def version(self) -> str:
        """As the folder's name says, so that nothing need be read; "" for the egg-info of a source folder."""
        parts = self.folder.removesuffix(".dist-info").removesuffix(".egg-info").split("-", 2)
        return parts[1] if len(parts) > 1 else ""

    @property
    def is_egg(self) -> bool:
        return self.folder.endswith(".egg-info")

    def has(self, file: str) -> bool:
        return os.path.exists(os.path.join(self.location, file))  # noqa: PTH110, PTH118

    def read(self, file: str) -> bytes | None:
        if self.zipped:
            from miles_core.host.archive import read_member

            return read_member(self.location, file)
        try:
            # Not blocking: a pipe in place of a file would be waited for without end.
            descriptor = os.open(os.path.join(self.location, file), os.O_RDONLY | os.O_NONBLOCK)  # noqa: PTH118 (pathlib costs start-up)
            with open(descriptor, "rb") as handle:  # noqa: PTH123
                return handle.read()
        except (FileNotFoundError, NotADirectoryError):
            return None


def distributions(path: Sequence[str], warnings: list[str]) -> Iterator[Found]:
    """Every metadata folder on the path, in order."""
    for root in dict.fromkeys(os.path.realpath(entry or os.curdir) for entry in path):
        try:
            with os.scandir(root) as entries:
                folders = sorted(entry.name for entry in entries if entry.name.endswith((".dist-info", ".egg-info")))
        except FileNotFoundError:
            continue
        except NotADirectoryError:
            from miles_core.host.archive import metadata_folders

            try:
                for folder in metadata_folders(root):
                    yield Found(f"{root}/{folder}", folder.rsplit("/", 1)[-1], zipped=True)
            except (OSError, ValueError) as error:
                warnings.append(f"{root} on the import path is unreadable: {error}")
            continue
        except OSError as error:
            warnings.append(f"{root} on the import path is unreadable: {error}")
            continue
        for folder in folders:
            yield Found(os.path.join(root, folder), folder)  # noqa: PTH118
