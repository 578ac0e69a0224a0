"""Research code: what a recipe names as `module:attr` instead of a registered component."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from miles_core.contracts.blame import place_of
from miles_core.contracts.component import Component
from miles_core.errors import RequestError
from miles_core.host.lock import LockedPlugin, lock_source

FUNCTION_REWARD = Component(
    "function",
    factory="miles_core.rollout.function_reward:FunctionReward",
    options="miles_core.rollout.function_reward:FunctionRewardOptions",
    summary="A plain function as a reward",
)
NO_OPTIONS = "miles_core.contracts.options:NoOptions"


def is_module_path(use: str) -> bool:
    """Whether `left:right` can be a module and an attribute."""
    left, colon, right = use.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*left.split("."), *right.split(".")))


@dataclass(frozen=True, slots=True)
class ResearchCode:
    """What `module:attr` stands for: a component, the options that `use` itself says, its line in the lock, and which
    of the folders of research code it came from (None: it is installed)."""

    component: Component
    given: Mapping[str, Any]
    lock: LockedPlugin
    folder: Path | None


def research_code(kind: str, use: str, folders: Sequence[Path]) -> ResearchCode:
    """Import what `module:attr` names.

    A reward may be a plain function. Anything else is a factory, called `(options, context)`; its options model is its
    attribute `Options`, if it has one. `folders` are searched after what is installed. Raises RequestError when the
    module or the attribute is not there or cannot be imported.
    """
    module_name, _, attribute = use.partition(":")
    module = _import(module_name, folders)
    found: Any = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            near = difflib.get_close_matches(name, dir(found), n=1)
            raise RequestError(
                f"there is no {attribute!r} in {_file(module)}", mend=f"did you mean {near[0]!r}?" if near else ""
            )
        found = getattr(found, name)
    if not callable(found):
        raise RequestError(f"{use} is a {type(found).__name__}, expected a function or a class")
    file = Path(module.__file__).resolve() if module.__file__ else None
    root = _import_root(module_name, file) if file else None
    folder = root if root in folders else None
    if kind == "reward" and not inspect.isclass(found):
        return ResearchCode(FUNCTION_REWARD, {"path": use}, lock_source(use, file), folder)
    options = f"{use}.Options" if inspect.isclass(getattr(found, "Options", None)) else NO_OPTIONS
    return ResearchCode(Component(use, factory=use, options=options), {}, lock_source(use, file), folder)


def code_folders(recipe_folder: Path, code: Sequence[str]) -> tuple[Path, ...]:
    """Where research code is looked for: the recipe's folder, those that it names, the working directory."""
    named = (recipe_folder / folder for folder in code)
    return tuple(dict.fromkeys(each.resolve() for each in (recipe_folder, *named, Path.cwd())))


def written_folders(recipe_folder: Path, code: Sequence[str], used: Iterable[Path | None]) -> list[str]:
    """The folders as the resolved recipe names them, which lies elsewhere: its own folder if code came from there
    (`used` are the folders that code came from), and those of the recipe. They are searched in the same order again.
    The working directory is not named: it is always searched."""
    named = [(recipe_folder / folder).resolve() for folder in code]
    own = [recipe_folder] if recipe_folder in used else []
    return [str(folder) for folder in dict.fromkeys([*own, *named])]


_SEARCHED: dict[str, frozenset[str]] = {}
"""Folders that earlier recipes of this process added to the import path -> top-level modules that were loaded before:
an editable installation in such a folder is no research code."""


def search_folders(folders: Sequence[Path]) -> None:
    """Search these folders, after everything else, and no longer those of another recipe: a module of the same name
    must not come from there."""
    wanted = [str(folder) for folder in folders]
    former = {folder: _SEARCHED.pop(folder) for folder in [*_SEARCHED] if folder not in wanted}
    sys.path[:] = [entry for entry in sys.path if entry not in former]
    for name, module in list(sys.modules.items()) if former else ():
        file = getattr(module, "__file__", None)
        root = str(_import_root(name, Path(file))) if isinstance(file, str) else ""
        if root in former and name.partition(".")[0] not in former[root]:
            del sys.modules[name]
    added = [folder for folder in wanted if folder not in sys.path]
    sys.path += added
    loaded = frozenset(name.partition(".")[0] for name in sys.modules)
    _SEARCHED.update(dict.fromkeys(added, loaded))
    importlib.invalidate_caches()


def _import(name: str, folders: Sequence[Path]) -> ModuleType:
    search_folders(folders)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]
        place = place_of(error)
        places = ", ".join(map(str, folders))
        raise RequestError(
            f"module {name!r} cannot be imported: {type(error).__name__}: {error}{f' ({place})' if place else ''}",
            mend=f"it is looked for in what is installed and in {places}" if missing else "mend it",
        ) from error


def _import_root(module_name: str, file: Path) -> Path:
    """The folder on the import path that the module came from."""
    above = module_name.count(".") + (file.name == "__init__.py")
    return file.parents[min(above, len(file.parents) - 1)]


def _file(module: ModuleType) -> str:
    return module.__file__ or module.__name__
