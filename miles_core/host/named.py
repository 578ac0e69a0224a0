"""Whether there is something at a `module:attr`: told from the source, without importing it.

A factory may import torch, so that nobody wants to import it to plan; that its name is misspelt should be said all the
same before a run has started engines.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

Fault = tuple[str, str]
"""What is wrong, and how to mend it."""


def fault_of_path(path: str) -> Fault | None:
    """What is wrong with `module:attr`; None when it is there, or when only an import could tell."""
    module, _, attribute = path.partition(":")
    first = attribute.partition(".")[0]
    loaded = sys.modules.get(module)
    if loaded is not None:
        return (
            None if hasattr(loaded, first) else _absent(first, getattr(loaded, "__file__", None) or module, dir(loaded))
        )
    spec, fault = _located(module.split("."))
    if fault is not None:
        return fault
    file = spec.origin if spec is not None else None
    if file is None or not file.endswith(".py"):
        return None
    try:
        names = _names(ast.parse(Path(file).read_bytes(), file))
    except SyntaxError as error:
        return (
            f"{file} cannot be read: SyntaxError: {error.msg} ({file}:{error.lineno})",
            f"repair {file}:{error.lineno}",
        )
    except (OSError, ValueError):
        return None
    if names is None or first in names or (spec is not None and _submodule(first, spec)):
        return None
    return _absent(first, file, names)


def _absent(name: str, file: str, names: Iterable[str]) -> Fault:
    near = difflib.get_close_matches(name, names, n=1)
    return f"there is no {name!r} in {file}", f"did you mean {near[0]!r}?" if near else f"write it in {file}"


def _located(parts: Sequence[str]) -> tuple[ModuleSpec | None, Fault | None]:
    """The module's spec, or that there is none. Packages above it are not imported."""
    spec: ModuleSpec | None = None
    for depth, part in enumerate(parts):
        name = ".".join(parts[: depth + 1])
        above = spec
        try:
            folders = above.submodule_search_locations if above is not None else None
            spec = PathFinder.find_spec(name, folders) if above is not None else importlib.util.find_spec(part)
        except (ImportError, ValueError):
            return None, None
        if spec is None:
            near = difflib.get_close_matches(part, _beside(above) if above is not None else (), n=1)
            right = ".".join([*parts[:depth], *near])
            return None, (f"there is no module {name!r}", f"did you mean {right!r}?" if near else "correct the name")
        if depth + 1 < len(parts) and spec.submodule_search_locations is None:
            return None, (f"{name!r} is a module, not a package with {parts[depth + 1]!r} in it", "correct the name")
    return spec, None


def _beside(package: ModuleSpec) -> list[str]:
    """Names of the modules in a package."""
    folders = map(Path, package.submodule_search_locations or ())
    return [
        each.stem for folder in folders if folder.is_dir() for each in folder.iterdir() if each.suffix in ("", ".py")
    ]


def _submodule(name: str, package: ModuleSpec) -> bool:
    return package.submodule_search_locations is not None and name in _beside(package)


_ANYTHING = frozenset({"*", "__getattr__", "globals", "vars", "setattr", "exec"})
"""Names in the body of a module that may bind others."""


def _names(tree: ast.Module) -> set[str] | None:
    """What a module binds; None when that depends on what it runs."""
    found: set[str] = set()
    waiting: list[ast.AST] = [*tree.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)  # what is inside it is its own
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and (isinstance(node.ctx, ast.Store) or node.id in _ANYTHING):
            found.add(node.id)
        else:
            waiting += ast.iter_child_nodes(node)
    return None if found & _ANYTHING else found
