"""Where an installed plugin's code lies, and which code it is; nothing of it is imported.

Listings go through here, so it imports little, and does without pathlib; git is asked by `working_tree` alone.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from miles_core.host.scan import InstalledPlugin

if TYPE_CHECKING:
    from pathlib import Path

NOT_CODE = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache"})
RECORD_OF_CHECKS = "conformance.json"


class WorkingTree(NamedTuple):
    """The git checkout of an editable plugin. `changed` are files of its package that differ from the commit."""

    commit: str
    changed: tuple[str, ...]


def source_folder(plugin: InstalledPlugin) -> str:
    """The folder that an editable plugin was installed from; "" when it is not editable or the folder is gone."""
    if not plugin.editable:
        return ""
    if plugin.location.endswith(".egg-info"):
        return os.path.dirname(plugin.location)  # noqa: PTH120 (pathlib costs start-up)
    try:
        with open(os.path.join(plugin.location, "direct_url.json"), encoding="utf-8") as handle:  # noqa: PTH118, PTH123
            text = handle.read()
    except (OSError, UnicodeDecodeError):
        return plugin.location if os.path.isfile(os.path.join(plugin.location, "__init__.py")) else ""  # noqa: PTH113, PTH118
    found = re.search(r'"url"\s*:\s*"file://([^"]*)"', text)
    if found is None:
        return ""
    folder = found.group(1)
    if "%" in folder:
        from urllib.parse import unquote

        folder = unquote(folder)
    return folder if os.path.isdir(folder) else ""  # noqa: PTH112


def package_folder(plugin: InstalledPlugin) -> str:
    """The package that the entry point names or lies in; "" for a lone module, in an archive, or when it is not where
    installers put it: beside the metadata, or in the source folder or its `src`."""
    source = source_folder(plugin)
    roots = [source, os.path.join(source, "src")] if source else [os.path.dirname(plugin.location)]  # noqa: PTH118, PTH120
    top, *inner = plugin.module.partition(":")[0].split(".")
    for root in roots:
        folder = os.path.join(root, top)  # noqa: PTH118
        if not os.path.isdir(folder):  # noqa: PTH112
            folder = root if os.path.basename(root) == top else ""  # noqa: PTH119
        if folder:
            for name in inner:
                below = os.path.join(folder, name)  # noqa: PTH118
                if not os.path.isdir(below):  # noqa: PTH112
                    break
                folder = below
            return folder
    return ""


def code_files(folder: Path) -> list[Path]:
    """The files of a package, sorted: without bytecode and caches, and without the record of checks, which holds a
    digest of the others."""
    return sorted(
        file
        for file in folder.rglob("*")
        if file.is_file()
        and file.suffix != ".pyc"
        and file.name != RECORD_OF_CHECKS
        and not NOT_CODE.intersection(file.relative_to(folder).parts)
    )


def code_digest(folder: Path) -> str:
    """sha256 over names and contents of the package's files."""
    import hashlib

    digest = hashlib.sha256()
    for file in code_files(folder):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def record_hash(plugin: InstalledPlugin) -> str:
    """sha256 of the RECORD file that its installer wrote; "" when there is none."""
    import hashlib

    if os.path.isfile(os.path.dirname(plugin.location)):  # noqa: PTH113, PTH120
        from miles_core.host.archive import read_member

        content = read_member(plugin.location, "RECORD")
        return "" if content is None else hashlib.sha256(content).hexdigest()
    try:
        with open(os.path.join(plugin.location, "RECORD"), "rb") as handle:  # noqa: PTH118, PTH123
            return hashlib.sha256(handle.read()).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return ""


def head_commit(folder: str) -> str:
    """The commit that is checked out around `folder`, read from `.git` without running git; "" when there is none."""
    while True:
        git = os.path.join(folder, ".git")  # noqa: PTH118
        if os.path.isdir(git):  # noqa: PTH112
            return _commit_of(git, git)
        pointer = _first_line(git)  # a worktree's or submodule's .git is a file
        if pointer.startswith("gitdir: "):
            git = os.path.join(folder, pointer.removeprefix("gitdir: "))  # noqa: PTH118
            common = _first_line(os.path.join(git, "commondir"))  # noqa: PTH118
            return _commit_of(git, os.path.join(git, common) if common else git)  # noqa: PTH118
        parent = os.path.dirname(folder)  # noqa: PTH120
        if parent == folder:
            return ""
        folder = parent


def _commit_of(git: str, common: str) -> str:
    head = _first_line(os.path.join(git, "HEAD"))  # noqa: PTH118
    if not head.startswith("ref: "):
        return head
    ref = head.removeprefix("ref: ")
    loose = _first_line(os.path.join(common, *ref.split("/")))  # noqa: PTH118
    if loose:
        return loose
    try:
        with open(os.path.join(common, "packed-refs"), encoding="utf-8") as handle:  # noqa: PTH118, PTH123
            lines = handle.read().splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    return next((line.split(" ", 1)[0] for line in lines if line.endswith(f" {ref}")), "")


def _first_line(file: str) -> str:
    try:
        with open(file, encoding="utf-8") as handle:  # noqa: PTH123
            return handle.readline().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def working_tree(plugin: InstalledPlugin, seconds: float = 10.0) -> WorkingTree | None:
    """Commit and changed files of an editable plugin; None when it is no git checkout, or git is missing or slow."""
    import subprocess

    folder = package_folder(plugin) or source_folder(plugin)
    commit = head_commit(folder) if folder and plugin.editable else ""
    if not commit:
        return None
    command = ["git", "--no-optional-locks", "status", "--porcelain", "--untracked-files=all", "-z", "--", "."]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=seconds, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    lines = [entry for entry in done.stdout.decode("utf-8", "replace").split("\0") if entry]
    return WorkingTree(commit, tuple(entry[3:] for entry in lines if entry[2:3] == " "))
