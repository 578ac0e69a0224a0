"""What a plugin's source imports, read from its text: nothing of it is run."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from miles_core.host.metadata import normalise


@dataclass(frozen=True, slots=True)
class Import:
    """One import of a file. `module` is absolute; `lazy`: it is run when a function is called."""

    module: str
    file: Path
    line: int
    lazy: bool

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


def imports_of(files: Iterable[Path]) -> list[Import]:
    """Absolute imports, those under `if TYPE_CHECKING` left out. Raises SyntaxError for a file that is no Python."""
    return [found for file in files for found in _of_file(file, file.stat().st_mtime_ns)]


def third_party(imports: Iterable[Import], own: str) -> list[Import]:
    """Those of neither the standard library nor the package itself."""
    return [each for each in imports if each.top not in sys.stdlib_module_names and each.top != own]


def modules_of(distribution: str) -> frozenset[str]:
    """The top-level modules that an installed distribution has; by its name when it is not installed."""
    guess = normalise(distribution).replace("-", "_")
    try:
        found = importlib.metadata.distribution(distribution)
        named = (found.read_text("top_level.txt") or "").split()
        files = [] if named else [path.parts for path in found.files or ()]
    except (importlib.metadata.PackageNotFoundError, UnicodeDecodeError):
        return frozenset({guess})
    tops = {parts[0] for parts in files if len(parts) > 1} | {
        parts[0].removesuffix(".py") for parts in files if len(parts) == 1 and parts[0].endswith(".py")
    }
    return frozenset({guess, *named, *tops})


@functools.lru_cache(maxsize=512)  # several checks ask about the same files
def _of_file(file: Path, _changed: int) -> tuple[Import, ...]:
    return tuple(_walk(ast.parse(file.read_text("utf-8"), str(file)), file, False))


def _walk(node: ast.AST, file: Path, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for name in child.names:
                yield Import(name.name, file, child.lineno, lazy)
        elif isinstance(child, ast.ImportFrom):
            if child.level == 0 and child.module:
                yield Import(child.module, file, child.lineno, lazy)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            for other in child.orelse:
                yield from _walk(other, file, lazy)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _walk(child, file, lazy or inside)
