"""`miles plugins show`: one plugin, loaded under guard, with what it registers."""

from __future__ import annotations

from collections.abc import Sequence

from miles_core.cli.output import remark, say, say_json, table
from miles_core.cli.plugin_list import plugin_facts
from miles_core.contracts.component import KINDS
from miles_core.errors import EXIT_DONE, EXIT_PLUGIN, PluginError, Problem, RequestError
from miles_core.host.activate import activate
from miles_core.host.decide import decide, matching
from miles_core.host.registry import Registered
from miles_core.host.scan import InstalledPlugin, scan


def show_plugin(name: str, *, as_json: bool) -> int:
    """Print it. A plugin that does not load is shown with the reason, and the exit code says so.

    Raises RequestError when it is not installed, PluginError when it is ambiguous or made for another core.
    """
    index = scan()
    decision = decide(index, [name])
    if decision.refusals:
        broken = all(refusal.broken for refusal in decision.refusals)
        raise (PluginError if broken else RequestError)([refusal.problem for refusal in decision.refusals])
    plugin = matching(decision.enabled, name)[0]
    registry, problems = activate(index, decision)
    components = [each for kind in KINDS for each in registry.components(kind) if each.plugin == plugin]
    if as_json:
        say_json(_facts(plugin, components, problems))
    else:
        _say_page(plugin, components)
    for problem in problems:
        remark(f"error: {problem}")
    return EXIT_PLUGIN if problems else EXIT_DONE


def _facts(plugin: InstalledPlugin, components: Sequence[Registered], problems: Sequence[Problem]) -> dict[str, object]:
    return {
        **plugin_facts(plugin),
        "healthy": not problems,
        "problems": [problem.to_json() for problem in problems],
        "components": [
            {
                "kind": each.kind,
                "name": each.component.name,
                "summary": each.component.summary,
                "factory": each.component.factory,
                "options": each.component.options,
                "capabilities": sorted(each.component.capabilities),
            }
            for each in components
        ],
    }


def _say_page(plugin: InstalledPlugin, components: Sequence[Registered]) -> None:
    say(f"plugin        {plugin.name}")
    say(f"distribution  {plugin.distribution} {plugin.version}{' (editable)' if plugin.editable else ''}")
    say(f"summary       {plugin.summary}")
    say(f"module        {plugin.module}")
    say(f"location      {plugin.location}")
    always = [line for line in plugin.requires if "extra ==" not in line]
    say(f"requires      {', '.join(always) or 'nothing'}")
    if components:
        say("")
        rows = [(f"{each.kind}.{each.component.name}", each.component.summary) for each in components]
        table(("component", "summary"), rows)
