"""Loading a plugin in a process of its own, to see what it offers and does; nothing that it does reaches this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from miles_core.errors import Problem
from miles_core.host.scan import InstalledPlugin

SECONDS = 60.0
HEAVY_PACKAGES = frozenset({"torch", "ray", "transformers", "vllm", "sglang", "tensorflow", "jax", "megatron"})
MANY_MODULES = 150


@dataclass(frozen=True, slots=True)
class Probe:
    """What was seen.

    import_ms   wall-clock milliseconds of the import over what the host itself loads; None when it did not end
    modules     third-party packages that the import brought in -> number of modules
    components  JSON data as `host.describe` writes it; hooks likewise
    changes     shared state of the process that changed -> how
    printed     what it wrote on standard output
    """

    problems: tuple[Problem, ...] = ()
    import_ms: float | None = None
    modules: Mapping[str, int] = field(default_factory=dict)
    components: tuple[Mapping[str, Any], ...] = ()
    hooks: tuple[Mapping[str, Any], ...] = ()
    changes: Mapping[str, str] = field(default_factory=dict)
    printed: str = ""

    @property
    def heavy(self) -> tuple[str, ...]:
        """The packages among `modules` that make every start slow."""
        return tuple(name for name, count in self.modules.items() if name in HEAVY_PACKAGES or count >= MANY_MODULES)


def probe(plugin: InstalledPlugin, seconds: float = SECONDS) -> Probe:
    """Import the plugin, let it register, describe what it has; in a fresh process that is killed after `seconds`."""
    with tempfile.TemporaryDirectory(prefix="miles-probe-") as folder:
        file = Path(folder, "report.json")
        command = [sys.executable, "-m", "miles_core.host.probe_child", str(file), plugin.distribution, plugin.name]
        path = os.pathsep.join(entry for entry in sys.path if entry)
        environment = {**os.environ, "PYTHONPATH": path, "PYDANTIC_DISABLE_PLUGINS": "1"}
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            output, errors = process.communicate(timeout=seconds)
            ended = f"ended the process with exit status {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            ended = f"did not end within {seconds:g} s"
        report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return _probe(plugin, report, output.decode(errors="replace"), errors.decode(errors="replace"), ended)


def _probe(plugin: InstalledPlugin, report: Mapping[str, Any], output: str, errors: str, ended: str) -> Probe:
    problems = [Problem(**problem) for problem in report.get("problems", ())]
    stage = report.get("stage", "it was looked for")
    if stage != "done":
        last = " / ".join(line.strip() for line in errors.strip().splitlines()[-2:])
        what = f"plugin {plugin.title} {ended} while {stage}{f'; its last words: {last}' if last else ''}"
        mend = f"repair or reinstall {plugin.distribution}; do not enable it"
        problems.append(Problem(what, plugin.location, mend))
    return Probe(
        problems=tuple(problems),
        import_ms=report.get("import_ms"),
        modules=report.get("modules", {}),
        components=tuple(report.get("components", ())),
        hooks=tuple(report.get("hooks", ())),
        changes=report.get("changes", {}),
        printed=output,
    )
