"""`miles plugins list`: what is installed, from its metadata alone; no plugin is imported."""

from __future__ import annotations

from miles_core.cli.output import flush, remark, say, say_json, table
from miles_core.host.scan import InstalledPlugin, scan


def list_plugins(
    *, everything: bool = False, enabled: bool = False, requirements: bool = False, as_json: bool = False
) -> int:
    """Print every installed plugin and, on standard error, what the scan found amiss."""
    index = scan()
    for warning in index.warnings:
        remark(f"warning: {warning}")
    if as_json:
        say_json(
            {
                "plugins": [plugin_facts(plugin) for plugin in index.plugins],
                "shadowed": [plugin_facts(plugin) for plugin in index.shadowed],
                "warnings": list(index.warnings),
            }
        )
    elif index.plugins:
        rows = [(p.name, p.distribution, p.version, ", ".join(p.provides) or p.summary) for p in index.plugins]
        table(("plugin", "distribution", "version", "provides"), rows)
    else:
        say("no plugin is installed")
    flush()
    return 0


def plugin_facts(plugin: InstalledPlugin) -> dict[str, object]:
    """One plugin as JSON data."""
    return {**plugin._asdict(), "provides": list(plugin.provides), "requires": list(plugin.requires)}
