"""`miles plugins new`: make a plugin's folder and say what to do with it."""

from __future__ import annotations

import shlex
from pathlib import Path

from miles_core.cli.output import say, say_json
from miles_core.host.scan import scan
from miles_core.scaffold.make import make


def make_plugin(name: str, *, kind: str, to: Path | None, as_json: bool) -> int:
    """Make it. Raises RequestError with every reason against it."""
    names, folder, files = make(name, kind, to, scan())
    quoted = shlex.quote(str(folder))
    steps = [
        f"pip install --no-build-isolation --no-deps -e {quoted}",
        f"pytest {quoted}",
        f"miles plugins check {names.plugin}",
    ]
    if "recipe.yaml" in files:
        steps.append(f"miles run {shlex.quote(str(folder / 'recipe.yaml'))}")
    if as_json:
        say_json(
            {
                "plugin": names.plugin,
                "kind": kind,
                "distribution": names.distribution,
                "folder": str(folder),
                "files": list(files),
                "next": steps,
            }
        )
        return 0
    say(f"made {folder}: {len(files)} files, which provide {kind}.{names.plugin}")
    say("next:")
    for step in steps:
        say(f"  {step}")
    return 0
