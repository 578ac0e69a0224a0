"""Where a plugin's code failed: the place that its author can do something about."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

_CORE = str(Path(__file__).parent.parent)
_CALLING = tuple(str(Path(_CORE, room)) for room in ("host", "recipe", "contracts", "cli", "testing/kit"))
_STANDARD = sysconfig.get_paths()["stdlib"]


def text_of(error: BaseException) -> str:
    """Class and text of an exception, also of one whose text cannot be had."""
    try:
        text = str(error)
    except Exception as second:  # an exception class is a plugin's code, too
        text = f"(its text raised {type(second).__name__})"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def place_of(error: BaseException) -> str:
    """`file:line` of the innermost frame that is neither the core's nor of an installed library; else of the innermost
    one of a library, which may be the plugin itself; else of a component of the core's own; "" when there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_nobodys(frame.filename)]
    foreign = [frame for frame in frames if not frame.filename.startswith(_CORE)]
    own = [frame for frame in foreign if "site-packages" not in Path(frame.filename).parts]
    for frame in [*own[-1:], *foreign[-1:], *frames[-1:]]:
        return f"{frame.filename}:{frame.lineno}"
    return ""


def _is_nobodys(file: str) -> bool:
    """Code that calls plugins: the standard library's, and that of the core's rooms which have no component."""
    in_library = "site-packages" in Path(file).parts
    return file.startswith(("<", *_CALLING)) or (file.startswith(_STANDARD) and not in_library)
