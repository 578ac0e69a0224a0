"""Research code: what a recipe names as `module:attr` instead of a registered component."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from miles_core.contracts.component import Component
from miles_core.errors import RequestError
from miles_core.host.load import place_of
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


def research_component(kind: str, use: str, folder: Path) -> tuple[Component, Mapping[str, Any], LockedPlugin]:
    """The component that `module:attr` stands for, options that it is given besides, and its line in the lock.

    A reward may be a plain function. Anything else is a factory, called `(options, context)`; its options model is its
    attribute `Options`, if it has one. `folder` (the recipe's) and the working directory are searched after what is
    installed. Raises RequestError when the module or the attribute is not there or cannot be imported.
    """
    module_name, _, attribute = use.partition(":")
    module = _import(module_name, folder)
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
    lock = lock_source(use, Path(module.__file__) if module.__file__ else None)
    if kind == "reward" and not inspect.isclass(found):
        return FUNCTION_REWARD, {"path": use}, lock
    options = f"{use}.Options" if inspect.isclass(getattr(found, "Options", None)) else NO_OPTIONS
    return Component(use, factory=use, options=options), {}, lock


def make_importable(folder: Path) -> None:
    """Let the recipe's folder and the working directory be imported from, after everything else."""
    for each in (str(folder), str(Path.cwd())):
        if each not in sys.path:
            sys.path.append(each)


def _import(name: str, folder: Path) -> ModuleType:
    make_importable(folder)
    importlib.invalidate_caches()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]
        place = place_of(error)
        raise RequestError(
            f"module {name!r} cannot be imported: {type(error).__name__}: {error}{f' ({place})' if place else ''}",
            mend=f"it is looked for in what is installed, in {folder} and in {Path.cwd()}" if missing else "mend it",
        ) from error


def _file(module: ModuleType) -> str:
    return module.__file__ or module.__name__
