"""The process in which a plugin is looked at: `python -m miles_core.host.probe_child FILE DISTRIBUTION NAME`.

Whatever an import does happens here. FILE holds how far this process came, and at the end what it saw: when the plugin
ends the process, the file still says during what.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np  # noqa: F401 (loaded before the plugin, so that its generator can be compared)

from miles_core.errors import MilesError, PluginError
from miles_core.host.activate import open_registry
from miles_core.host.describe import describe_component, describe_hooks
from miles_core.host.global_state import changes, snapshot
from miles_core.host.load import guarded
from miles_core.host.registry import Registry
from miles_core.host.scan import InstalledPlugin, scan


def main() -> None:
    """Look at one plugin and write what was seen."""
    file, distribution, name = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    plugin = next(each for each in scan().plugins if (each.distribution, each.name) == (distribution, name))
    report: dict[str, Any] = {"stage": "it was imported"}
    _write(file, report)
    before, modules = snapshot(), set(sys.modules)
    subject, seconds, error = _import(plugin)
    report |= {"import_ms": round(seconds * 1000, 1), "modules": _packages(set(sys.modules) - modules, plugin)}
    report |= {"problems": [], "components": [], "hooks": []}
    if error is not None:
        try:
            guarded(plugin, "failed to load", partial(_raise, error))
        except PluginError as problems:
            report["problems"] = [problem.to_json() for problem in problems.problems]
    else:
        report["stage"] = "it registered"
        _write(file, report)
        report["hooks"] = describe_hooks(subject)
        registry = _registry(plugin, report)
        report["changes"] = changes(before, snapshot())
        report["stage"] = "its options were described"
        _write(file, report)
        if registry is not None:
            _describe(registry, plugin, report)
    report.setdefault("changes", changes(before, snapshot()))
    report["stage"] = "done"
    _write(file, report)
    sys.stdout.flush()


def _raise(error: BaseException) -> None:
    raise error


def _import(plugin: InstalledPlugin) -> tuple[Any, float, BaseException | None]:
    module, _, attribute = plugin.module.partition(":")
    started = time.perf_counter()
    try:
        found: Any = importlib.import_module(module)
        for name in filter(None, attribute.split(".")):
            found = getattr(found, name)
    except BaseException as error:  # the reason for this process
        return None, time.perf_counter() - started, error
    return found, time.perf_counter() - started, None


def _registry(plugin: InstalledPlugin, report: dict[str, Any]) -> Registry | None:
    try:
        return open_registry([f"{plugin.distribution}:{plugin.name}"])
    except MilesError as error:
        report["problems"] += [problem.to_json() for problem in error.problems]
        return None


def _describe(registry: Registry, plugin: InstalledPlugin, report: dict[str, Any]) -> None:
    from miles_core.contracts.component import KINDS

    for registered in (each for kind in KINDS for each in registry.components(kind)):
        if registered.plugin == plugin:
            facts, problems = describe_component(registered)
            report["components"].append(facts)
            report["problems"] += [problem.to_json() for problem in problems]


def _packages(modules: set[str], plugin: InstalledPlugin) -> dict[str, int]:
    """Third-party packages that came in, with their number of modules; not the plugin's own."""
    own = {plugin.module.partition(":")[0].partition(".")[0], "miles_core"}
    counts: dict[str, int] = {}
    for module in modules:
        top = module.partition(".")[0]
        if top not in own and top not in sys.stdlib_module_names and not top.startswith("__"):
            counts[top] = counts.get(top, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def _write(file: Path, report: dict[str, Any]) -> None:
    partial_file = file.with_suffix(".partial")
    partial_file.write_text(json.dumps(report, default=str), encoding="utf-8")
    partial_file.replace(file)


if __name__ == "__main__":
    main()
