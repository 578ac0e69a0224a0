"""`milesfile.py` beside a recipe: a plugin for prototypes, without a package around it.

Its functions marked with @hookimpl register components and listen to events as an installed plugin's do. It is enabled
by being there, under the name `milesfile`: `--plugin no:milesfile` and `--no-plugins` leave it out.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from miles_core.errors import Problem
from miles_core.host.names import MILESFILE
from miles_core.host.scan import InstalledPlugin
from miles_core.recipe.document import Document

FILE = f"{MILESFILE}.py"


def find_milesfile(document: Document, code: Sequence[str]) -> InstalledPlugin | None:
    """The file beside the recipe, else in the first of its `code:` folders that has one. As a plugin it has neither
    distribution nor version; `location` is the file, `summary` says where it was found."""
    beside = [(document.folder, "beside the recipe")] if document.file is not None else []
    named = [((document.folder / folder).resolve(), f"in code: {folder}") for folder in code]
    for folder, how in [*beside, *named]:
        if (folder / FILE).is_file():
            return InstalledPlugin(MILESFILE, "", "", MILESFILE, summary=how, location=str(folder / FILE))
    return None


def taken_name(plugin: InstalledPlugin) -> Problem | None:
    """What is wrong when `import milesfile` would give another module than the file."""
    loaded = sys.modules.get(MILESFILE)
    spec = importlib.util.find_spec(MILESFILE) if loaded is None else None
    found = getattr(loaded, "__file__", None) if loaded is not None else spec.origin if spec is not None else None
    if found is not None and Path(found).resolve() == Path(plugin.location).resolve():
        return None
    what = f"{plugin.location} cannot be loaded: `import {MILESFILE}` gives {found or 'nothing'}"
    return Problem(what, plugin.location, f"rename or remove the other one, or run with --plugin no:{MILESFILE}")
