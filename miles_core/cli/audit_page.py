"""`miles audit`: prove of a run that nothing was lost or trained twice, or say what was."""

from __future__ import annotations

from pathlib import Path

from miles_core.cli.output import say, say_json
from miles_core.errors import EXIT_DONE, EXIT_FAILED
from miles_core.loop.audit import audit, in_words
from miles_core.observe.runs import find_run


def audit_run(name: str, runs_dir: Path, *, as_json: bool) -> int:
    result = audit(find_run(runs_dir, name))
    if as_json:
        say_json(result.as_data())
    else:
        say(f"run {result.run}: {result.state}")
        for line in in_words(result):
            say(line)
        for finding in result.findings:
            say(f"wrong: {finding.where}: {finding.what}")
        say(
            "audit: nothing was lost, nothing was trained twice"
            if result.ok
            else f"audit: {len(result.findings)} faults"
        )
    return EXIT_DONE if result.ok else EXIT_FAILED
