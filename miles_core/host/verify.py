"""Do the files of an installed plugin still have the checksums that its wheel recorded?"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from miles_core.host.scan import InstalledPlugin
from miles_core.host.source import code_files, package_folder, source_folder, working_tree

WRITTEN_LATER = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})
"""Files of the metadata folder that installers write themselves."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of comparing. `compared` is the number of files with a checksum; `remark` says why there was nothing
    to compare; for an editable plugin `commit` and `changed` say what git knows of its package."""

    plugin: InstalledPlugin
    compared: int = 0
    missing: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    remark: str = ""
    commit: str = ""
    changed: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        return bool(self.missing or self.altered or self.extra)

    @property
    def sentence(self) -> str:
        """In what the files differ from the RECORD; "" when they do not."""
        found = {"altered": self.altered, "missing": self.missing, "not in its RECORD": self.extra}
        return "; ".join(f"{', '.join(names)} {how}" for how, names in found.items() if names)


def verify(plugin: InstalledPlugin) -> Verification:
    """Hash every file of the RECORD again, and look for files in the plugin's package that it does not list."""
    if plugin.editable:
        return _editable(plugin)
    if Path(plugin.location).parent.is_file():
        return _in_archive(plugin)
    record = Path(plugin.location, "RECORD")
    if not record.is_file():
        return Verification(plugin, remark="its installer left no RECORD, so there is nothing to compare with")
    root = record.parent.parent
    missing, altered, listed, compared = [], [], set(), 0
    for name, checksum in _lines(record.read_text(encoding="utf-8")):
        listed.add((root / name).resolve())
        if name.endswith(".pyc"):
            continue
        content = _content(root / name)
        if content is None:
            missing.append(name)
        elif checksum:
            compared += 1
            if not _matches(content, checksum):
                altered.append(name)
    return Verification(plugin, compared, tuple(missing), tuple(altered), tuple(_extra(plugin, root, listed)))


def installed_digest(plugin: InstalledPlugin) -> str:
    """sha256 over names and contents of what a wheel installed, as they are now: the files that its RECORD lists and
    those that lie in its package, without bytecode, scripts and what installers write themselves. "" when nobody can
    tell which files these are."""
    digest = hashlib.sha256()
    files = _installed_files(plugin)
    for name, content in files:
        said = "absent" if content is None else str(len(content))
        digest.update(f"{name}\0{said}\0".encode())
        digest.update(content or b"")
    return digest.hexdigest() if files else ""


def _installed_files(plugin: InstalledPlugin) -> list[tuple[str, bytes | None]]:
    root, metadata = Path(plugin.location).parent, Path(plugin.location).name
    later = {f"{metadata}/{name}" for name in WRITTEN_LATER}
    if root.is_file():
        with zipfile.ZipFile(root) as opened:
            return [(name, opened.read(name)) for name in sorted({*opened.namelist()} - later)]
    record = Path(plugin.location, "RECORD")
    names = {name for name, _ in _lines(record.read_text(encoding="utf-8"))} if record.is_file() else set()
    package = package_folder(plugin)
    names |= {file.relative_to(root).as_posix() for file in code_files(Path(package))} if package else set()
    own = (name for name in sorted(names - later) if not name.endswith(".pyc") and not name.startswith(("../", "/")))
    return [(name, _content(root / name)) for name in own]


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None


def _extra(plugin: InstalledPlugin, root: Path, listed: set[Path]) -> Iterator[str]:
    folders = [Path(plugin.location)]
    top = plugin.module.partition(":")[0].partition(".")[0]
    if package_folder(plugin):
        folders.append(root / top)
    for folder in folders:
        for file in code_files(folder):
            own = folder == folders[0] and file.name in WRITTEN_LATER
            if file.resolve() not in listed and not own:
                yield file.relative_to(root).as_posix()


def _editable(plugin: InstalledPlugin) -> Verification:
    source, tree = source_folder(plugin), working_tree(plugin)
    remark = f"is editable, so there is nothing to compare with: its code is {source or 'in a folder that is gone'}"
    if tree is None:
        return Verification(plugin, remark=remark)
    return Verification(plugin, remark=remark, commit=tree.commit, changed=tree.changed)


def _in_archive(plugin: InstalledPlugin) -> Verification:
    archive, folder = Path(plugin.location).parent, Path(plugin.location).name
    missing, altered, compared = [], [], 0
    with zipfile.ZipFile(archive) as opened:
        members = set(opened.namelist())
        if f"{folder}/RECORD" not in members:
            return Verification(plugin, remark="its archive has no RECORD, so there is nothing to compare with")
        lines = dict(_lines(opened.read(f"{folder}/RECORD").decode("utf-8")))
        for name, checksum in lines.items():
            if name not in members:
                missing.append(name)
            elif checksum:
                compared += 1
                if not _matches(opened.read(name), checksum):
                    altered.append(name)
    extra = sorted(name for name in members - lines.keys() if not name.endswith("/"))
    return Verification(plugin, compared, tuple(missing), tuple(altered), tuple(extra))


def _lines(record: str) -> Iterator[tuple[str, str]]:
    """Name and checksum of each file; the checksum is empty where a RECORD has none, as for itself."""
    for row in csv.reader(io.StringIO(record)):
        if row and row[0]:
            yield row[0], row[1] if len(row) > 1 else ""


def _matches(content: bytes, checksum: str) -> bool:
    """`algorithm=digest`, the digest in URL-safe base64 without padding."""
    algorithm, _, expected = checksum.partition("=")
    digest = hashlib.new(algorithm, content).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == expected.rstrip("=")
