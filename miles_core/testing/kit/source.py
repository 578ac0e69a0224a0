"""Where a plugin's code lies: its package, its source folder, its records. Nothing of the plugin is imported."""

from __future__ import annotations

import importlib.util
import json
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from miles_core.contracts.component import Component
from miles_core.errors import RequestError
from miles_core.host.decide import CORE_DISTRIBUTION
from miles_core.host.metadata import normalise
from miles_core.host.scan import Index, InstalledPlugin

RECORD_NAME = "conformance.json"


def package_folder(plugin: InstalledPlugin) -> Path | None:
    """The folder of the package that the entry point names or lies in; None for a lone module or one in an archive."""
    module = plugin.module.partition(":")[0]
    top, *inner = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations)))
    for name in inner:
        if not (folder / name).is_dir():
            break
        folder = folder / name
    return folder if folder.is_dir() else None


def source_folder(plugin: InstalledPlugin) -> Path | None:
    """The folder with its pyproject.toml, when it was installed from one that is still there."""
    if not plugin.editable:
        return None
    location = Path(plugin.location)
    candidates = [location.parent, *_direct(location / "direct_url.json")]
    return next((folder for folder in candidates if (folder / "pyproject.toml").is_file()), None)


def plugins_of_folder(folder: Path, index: Index) -> list[InstalledPlugin]:
    """The installed plugins of a source folder. Raises RequestError when it is none, or is not installed."""
    project = project_of(folder)
    name = str(project.get("name", ""))
    if not name:
        raise RequestError("no plugin's source folder: its pyproject.toml names no project", where=str(folder))
    found = [plugin for plugin in index.plugins if plugin.distribution == normalise(name)]
    if not found:
        raise RequestError(
            f"{name} is not installed",
            where=str(folder),
            mend=f"pip install --no-build-isolation --no-deps -e {folder}",
        )
    return found


def project_of(folder: Path) -> dict[str, Any]:
    """The `[project]` table of a source folder. Raises RequestError when there is none."""
    file = folder / "pyproject.toml"
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project")
    except FileNotFoundError:
        raise RequestError(
            f"{folder} has no pyproject.toml", mend="give a plugin's name or its source folder"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"not TOML: {error}", where=str(file)) from error
    if not isinstance(project, dict):
        raise RequestError("there is no [project] table", where=str(file), mend="see `miles plugins new`")
    return project


def python_files(folder: Path) -> Iterator[Path]:
    """Every Python file of a package, in a fixed order; its tests, if they lie inside, are not part of it."""
    for file in sorted(folder.rglob("*.py")):
        inside = file.relative_to(folder).parts
        if "__pycache__" not in inside and "tests" not in inside:
            yield file


def own_files(plugin: InstalledPlugin, components: Iterable[Component]) -> list[Path]:
    """The Python files that are the plugin's. The core's own plugin shares its package with the host: its files are
    those that it names."""
    folder = package_folder(plugin)
    if folder is None:
        return []
    if plugin.distribution != CORE_DISTRIBUTION or folder.name != "miles_core":
        return list(python_files(folder))
    paths = [plugin.module, *(path for each in components for path in (each.factory, each.options))]
    modules = {path.partition(":")[0] for path in paths}
    files = [folder.parent.joinpath(*module.split(".")).with_suffix(".py") for module in modules]
    return sorted(file for file in files if file.is_file() and file.is_relative_to(folder))


def records_of_runs(folder: Path | None) -> frozenset[str]:
    """The components, `kind.name`, that a record of a run in the package names (`*.evidence.json`)."""
    named: set[str] = set()
    for file in sorted(folder.rglob("*.evidence.json")) if folder else ():
        record = json.loads(file.read_text(encoding="utf-8"))
        named.update(map(str, record.get("components", ())))
    return frozenset(named)


def _direct(file: Path) -> Iterator[Path]:
    """The folder that `pip install -e` was given."""
    if file.is_file():
        url = urlparse(json.loads(file.read_text(encoding="utf-8")).get("url", ""))
        if url.scheme == "file":
            yield Path(unquote(url.path))
