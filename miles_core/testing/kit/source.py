"""Where a plugin's code lies: its package, its source folder, its records. Nothing of the plugin is imported."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from miles_core.contracts.component import Component
from miles_core.errors import RequestError
from miles_core.host import source
from miles_core.host.decide import CORE_MODULE
from miles_core.host.metadata import normalise
from miles_core.host.scan import Index, InstalledPlugin


def package_folder(plugin: InstalledPlugin) -> Path | None:
    """The package that the entry point names or lies in; None for a lone module or one in an archive."""
    folder = source.package_folder(plugin)
    return Path(folder) if folder else None


def source_folder(plugin: InstalledPlugin) -> Path | None:
    """The folder with its pyproject.toml, when it was installed from one that is still there."""
    folder = Path(source.source_folder(plugin) or "/no such folder")
    return folder if (folder / "pyproject.toml").is_file() else None


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
    if not is_the_core(plugin):
        return list(python_files(folder))
    paths = [plugin.module, *(path for each in components for path in (each.factory, each.options))]
    modules = {path.partition(":")[0] for path in paths}
    files = [folder.parent.joinpath(*module.split(".")).with_suffix(".py") for module in modules]
    return sorted(file for file in files if file.is_file() and file.is_relative_to(folder))


def is_the_core(plugin: InstalledPlugin) -> bool:
    """Whether it is the plugin of the core's own components."""
    return plugin.module == CORE_MODULE


def records_of_runs(folder: Path | None) -> frozenset[str]:
    """The components, `kind.name`, that a record of a run in the package names (`*.evidence.json`). Raises
    RequestError for a record that cannot be read."""
    named: set[str] = set()
    for file in sorted(folder.rglob("*.evidence.json")) if folder else ():
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            named.update(map(str, record.get("components", ())))
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise RequestError(
                f"is no record of a run: {error}", where=str(file), mend="make it again, or remove it"
            ) from error
    return frozenset(named)
