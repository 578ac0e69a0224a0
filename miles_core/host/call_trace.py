"""`--trace-plugins FILE`: one JSON line for each call of a hook, with the plugin that was called and how it ended."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from miles_core.errors import RequestError, RunError
from miles_core.host.scan import InstalledPlugin


@dataclass(frozen=True, slots=True)
class HookCall:
    """One call. `error` is "" when it returned."""

    hook: str
    plugin: InstalledPlugin
    seconds: float
    error: str = ""

    def to_json(self) -> dict[str, object]:
        return {
            "hook": self.hook,
            "plugin": self.plugin.name,
            "distribution": self.plugin.distribution,
            "version": self.plugin.version,
            "ms": round(self.seconds * 1000, 4),
            "outcome": "raised" if self.error else "returned",
            **({"error": self.error} if self.error else {}),
        }


class HookTrace:
    """The file. Each line is handed to the operating system as it is written. Raises RequestError when it cannot be
    opened, RunError when it cannot be written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("w", encoding="utf-8", buffering=1)
        except OSError as error:
            raise RequestError(
                f"the trace of plugins cannot be written: {error.strerror or error}", where=str(path)
            ) from error

    def write(self, call: HookCall) -> None:
        try:
            self._file.write(json.dumps(call.to_json()) + "\n")
        except OSError as error:
            raise RunError(f"the trace of plugins: {error.strerror or error}", where=str(self._path)) from error

    def close(self) -> None:
        self._file.close()
