"""Installed distributions made up on the spot: real modules and real metadata in a folder like site-packages."""

from __future__ import annotations

import base64
import hashlib
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path


class SitePackages:
    """A folder to put on the import path. What is added to it is found, imported and broken like the real thing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def module(self, name: str, source: str) -> Path:
        """Write a module; the packages above it are made as needed."""
        parts = name.split(".")
        package = self.folder
        for part in parts[:-1]:
            package = package / part
            package.mkdir(exist_ok=True)
            (package / "__init__.py").touch()
        file = package / f"{parts[-1]}.py"
        file.write_text(textwrap.dedent(source), encoding="utf-8")
        return file

    def distribution(
        self,
        name: str,
        version: str = "1.0",
        *,
        plugins: Mapping[str, str] | None = None,
        provides: Sequence[str] = (),
        requires: Sequence[str] = (),
        summary: str = "made up for a test",
        egg: bool = False,
        hook_api: str = "",
    ) -> Path:
        """Write the metadata of a distribution: dist-info as an installer does, or the egg-info of a source folder."""
        stem = name.replace("-", "_")
        folder = self.folder / (f"{stem}.egg-info" if egg else f"{stem}-{version}.dist-info")
        folder.mkdir()
        headers = [f"Name: {name}", f"Version: {version}", f"Summary: {summary}"]
        headers += [f"Requires-Dist: {each}" for each in requires]
        metadata = "\n".join(["Metadata-Version: 2.1", *headers, "", "A description.\n\nName: not-this-one\n"])
        (folder / ("PKG-INFO" if egg else "METADATA")).write_text(metadata, encoding="utf-8")
        lines = ["[miles.plugins]", *(f"{key} = {value}" for key, value in (plugins or {}).items())]
        lines += ["", "[miles.provides]", *(f"{each} = {stem}" for each in provides)]
        lines += ["", "[miles.hook_api]", f"{hook_api} = {stem}"] if hook_api else []
        (folder / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        if not egg:
            named = [_recorded(folder, file) for file in ("METADATA", "entry_points.txt")]
            (folder / "RECORD").write_text("".join([*named, f"{folder.name}/RECORD,,\n"]))
        return folder

    def plugin(
        self, name: str, source: str, version: str = "1.0", *, hook_api: str = "", **metadata: Sequence[str]
    ) -> Path:
        """A whole plugin: distribution `miles-plugin-<name>` with the entry point `name` and one module."""
        module = f"miles_plugin_{name.replace('-', '_')}"
        self.module(module, source)
        provides, requires = metadata.get("provides", ()), metadata.get("requires", ())
        return self.distribution(
            f"miles-plugin-{name}",
            version,
            plugins={name: module},
            provides=provides,
            requires=requires,
            hook_api=hook_api,
        )


def _recorded(folder: Path, name: str) -> str:
    """A line of RECORD: file, checksum, size."""
    content = (folder / name).read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{folder.name}/{name},sha256={digest},{len(content)}\n"
