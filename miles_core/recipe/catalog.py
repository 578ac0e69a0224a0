"""The recipes that there are: files in folders, and those that installed plugins bring along."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from miles_core.errors import RequestError
from miles_core.host.activate import open_registry
from miles_core.host.decide import CORE_DISTRIBUTION, decide
from miles_core.host.registry import Registered
from miles_core.host.request import read_request
from miles_core.host.scan import Index, scan

log = logging.getLogger("miles.recipes")

ROOTS = (Path("recipes"),)
EVIDENCE = ("fully-gated", "proxy-gated", "verified", "not-verified")


@dataclass(frozen=True, slots=True)
class RecipeEntry:
    """A recipe of the catalog. `evidence` is how well it is proven: what the record beside it says, else
    not-verified. `origin` is the distribution or the folder that it comes from."""

    name: str
    file: Path
    summary: str
    evidence: str
    origin: str

    def to_json(self) -> dict[str, str]:
        return {
            "name": self.name,
            "file": str(self.file),
            "summary": self.summary,
            "evidence": self.evidence,
            "origin": self.origin,
        }


def list_recipes(roots: Sequence[Path] = ROOTS, index: Index | None = None) -> tuple[RecipeEntry, ...]:
    """Recipes in the folders (those that exist), then the packaged ones, each by name. Only plugins that declare to
    provide recipes are imported, and none that miles.toml or MILES_PLUGINS blocks; a broken one is named in the log.
    """
    local = [
        _entry(file.stem, file, str(root)) for root in roots if root.is_dir() for file in sorted(root.glob("*.yaml"))
    ]
    return (*local, *_packaged(scan() if index is None else index))


def find_recipe(recipe: str, roots: Sequence[Path] = ROOTS) -> Path:
    """The file that a person means: a path, else a name of the catalog. Raises RequestError with the nearest name."""
    path = Path(recipe)
    if path.is_file() or path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        return path
    entries = list_recipes(roots)
    for entry in entries:
        if entry.name == recipe:
            return entry.file
    names = [entry.name for entry in entries]
    near = difflib.get_close_matches(recipe, names, n=1)
    raise RequestError(
        f"there is no recipe {recipe!r}; there are: {', '.join(names) or 'none'}",
        mend=f"did you mean {near[0]!r}?" if near else "give the path of a YAML file",
    )


def _packaged(index: Index) -> list[RecipeEntry]:
    request = read_request([], no_plugins=False, environ=os.environ, folder=Path())
    blocked = {verdict.plugin for verdict in decide(index, request).off}
    providers = tuple(
        plugin
        for plugin in index.plugins
        if plugin.distribution == CORE_DISTRIBUTION
        or (plugin not in blocked and any(each.startswith("recipe.") for each in plugin.provides))
    )
    registry = open_registry(None, index._replace(plugins=providers))
    for plugin in registry.failed:
        log.warning("plugin %s does not load, its recipes are not listed; miles plugins show says why", plugin.title)
    entries = []
    for registered in registry.components("recipe"):
        file = packaged_file(registered)
        if file is None:
            log.warning("recipe %s names %s, which is not there", registered.qualified, registered.component.factory)
        else:
            entries.append(_entry(registered.component.name, file, registered.plugin.distribution))
    return entries


def packaged_file(registered: Registered) -> Path | None:
    """The YAML file of a packaged recipe; None when it is not there. The package is located, not imported."""
    package, _, relative = registered.component.factory.partition(":")
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(folder) / relative).is_file():
            return Path(folder) / relative
    return None


def _entry(name: str, file: Path, origin: str) -> RecipeEntry:
    return RecipeEntry(name, file, _summary(file), _evidence(file), origin)


def _summary(file: Path) -> str:
    """The first paragraph of the comment that the file begins with."""
    words: list[str] = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        text = line.removeprefix("#").strip()
        if not line.startswith("#") or (words and not text):
            break
        words.append(text)
    return " ".join(filter(None, words))


def _evidence(file: Path) -> str:
    """What NAME.evidence.json beside the recipe says, when it can be read; a record that cannot proves nothing."""
    record = file.with_name(f"{file.stem}.evidence.json")
    if not record.is_file():
        return "not-verified"
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
        level, of = found["evidence"], found["recipe_sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s is not a record of evidence: %s", record, error)
        return "not-verified"
    if of != hashlib.sha256(file.read_bytes()).hexdigest():
        log.warning("%s was made of another version of %s: it proves nothing of this one", record, file.name)
        return "not-verified"
    if level not in EVIDENCE:
        log.warning("%s says %r, expected one of %s", record, level, ", ".join(EVIDENCE))
        return "not-verified"
    return str(level)
