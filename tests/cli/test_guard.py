"""Whatever a command raises becomes a message and an exit code."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from miles_core.cli import app
from miles_core.cli.guard import guarded
from miles_core.errors import MilesError, PluginError, Problem, RequestError, RunError

Raising = Callable[[BaseException], int]


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> Raising:
    def run(error: BaseException, *arguments: str) -> int:
        def command_line(_: list[str]) -> int:
            raise error

        monkeypatch.setattr(app, "command_line", command_line)
        return guarded(arguments)

    return run


@pytest.mark.parametrize(
    ("error", "code"), [(RunError("w"), 1), (RequestError("w"), 2), (PluginError("w"), 3), (MilesError("w"), 1)]
)
def test_exit_codes(raising: Raising, error: MilesError, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(error) == code
    assert capsys.readouterr() == ("", "error: w\n")


def test_every_problem_is_printed_with_its_place_and_mend(raising: Raising, capsys: pytest.CaptureFixture[str]) -> None:
    raising(RequestError([Problem("is wrong", "r.yaml:3", "write 4"), Problem("is missing")]))
    assert capsys.readouterr().err.splitlines() == [
        "error: r.yaml:3: is wrong", "  mend: write 4", "error: is missing", "2 problems",
    ]  # fmt: skip


def test_an_interrupt_says_what_was_saved(raising: Raising, capsys: pytest.CaptureFixture[str]) -> None:
    error = KeyboardInterrupt()
    error.add_note("checkpoint of step 5 is saved; continue with `miles resume runs/x`")
    assert raising(error) == 130
    assert capsys.readouterr().err.splitlines() == [
        "interrupted", "checkpoint of step 5 is saved; continue with `miles resume runs/x`",
    ]  # fmt: skip


def test_the_unexpected_is_one_line_and_its_traceback_is_kept(
    raising: Raising, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(ZeroDivisionError("division by zero")) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: unexpected ZeroDivisionError: division by zero\n")
    assert "Traceback" not in said
    kept = Path(re.search(r"report it with (\S+)", said)[1])  # type: ignore[index]
    try:
        assert "ZeroDivisionError" in kept.read_text()
    finally:
        kept.unlink()


def test_with_traceback_nothing_is_kept(raising: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(ZeroDivisionError("x"), "--traceback") == 1
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "miles-traceback" not in said
