"""Around every command: errors become messages and exit codes, never a traceback that nobody asked for."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from miles_core.cli.output import flush, remark
from miles_core.errors import EXIT_BAD_REQUEST, EXIT_FAILED, EXIT_INTERRUPTED, MilesError

TRACEBACK_FLAG = "--traceback"
TRACEBACK_VARIABLE = "MILES_TRACEBACK"


def guarded(arguments: Sequence[str]) -> int:
    """Run the command line `arguments` and return the exit code."""
    words, wants_traceback = _without_flag(arguments)
    wants_traceback = wants_traceback or os.environ.get(TRACEBACK_VARIABLE, "") not in ("", "0")
    warnings.formatwarning = _plain_warning  # type: ignore[assignment]  # it is called by position
    try:
        from miles_core.cli.app import command_line
        from miles_core.cli.own_process import own_process

        with own_process():
            code = command_line(words)
            flush()
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else EXIT_FAILED
    except KeyboardInterrupt as error:
        return _report("interrupted", error, EXIT_INTERRUPTED, wants_traceback)
    except MilesError as error:
        told = _explained(error)
        return _report(_problems(told), error, told.exit_code, wants_traceback)
    except Exception as error:
        usage = _usage(error)
        if usage is not None:
            return _report(usage, error, EXIT_BAD_REQUEST, wants_traceback)
        told = _explained(error)
        if isinstance(told, MilesError):
            return _report(_problems(told), error, told.exit_code, wants_traceback)
        kept = "" if wants_traceback else f"\n  mend: this is a defect; please report it with {_keep(error)}"
        return _report(f"error: unexpected {type(error).__name__}: {error}{kept}", error, EXIT_FAILED, wants_traceback)
    return code


def _explained(error: Any) -> Any:
    """The error, or one that names the damaged distribution which it is due to."""
    from miles_core.host.damage import explained

    return explained(error)


def _plain_warning(message: Warning | str, *_where: object) -> str:
    """Warnings are for the person at the keyboard, who does not want the line that raised them."""
    return f"warning: {message}\n"


def _without_flag(arguments: Sequence[str]) -> tuple[list[str], bool]:
    """`--traceback` may stand anywhere before a `--`."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    words = [word for word in arguments[:end] if word != TRACEBACK_FLAG]
    return [*words, *arguments[end:]], len(words) < end


def _problems(error: MilesError) -> str:
    lines = [f"error: {problem}" for problem in error.problems]
    if len(lines) > 1:
        lines.append(f"{len(lines)} problems")
    return "\n".join(lines)


def _usage(error: Exception) -> str | None:
    """What the parser says of arguments that it does not understand; None for any other error."""
    import typer

    usage_error: Any = typer.BadParameter.__mro__[1]
    if not isinstance(error, usage_error):
        return None
    context: Any = getattr(error, "ctx", None)
    hint = "" if context is None else f"\n  mend: see `{context.command_path} --help`"
    return f"error: {error.format_message()}{hint}"


def _report(text: str, error: BaseException, code: int, wants_traceback: bool) -> int:
    """Notes added to the exception (what was saved, how to go on) follow its own text."""
    if wants_traceback:
        import traceback

        traceback.print_exception(error)
        remark(getattr(error, "origin", ""))
        for trace in filter(None, (problem.trace for problem in getattr(error, "problems", ()))):
            remark(trace)
    for line in [text, *getattr(error, "__notes__", [])]:
        remark(line)
    sys.stderr.flush()
    return code


def _keep(error: Exception) -> str:
    """Where the traceback was put."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="miles-traceback-", suffix=".txt", delete=False) as file:
        traceback.print_exception(error, file=file)
    return file.name
