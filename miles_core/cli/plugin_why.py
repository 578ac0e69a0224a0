"""`miles plugins why`: who enables or blocks a plugin, and what lost against it; nothing is imported."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from miles_core import __version__
from miles_core.cli.output import say, say_json, table
from miles_core.errors import EXIT_DONE, RequestError
from miles_core.host import names
from miles_core.host.admit import objections
from miles_core.host.decide import decide
from miles_core.host.facts import facts_of
from miles_core.host.known_bad import KNOWN_BAD
from miles_core.host.request import ENABLES, PluginRequest, read_request
from miles_core.host.scan import Index, InstalledPlugin, scan
from miles_core.host.verdict import INSTALLED, UNKNOWN, Reason, Verdict

_SAYS = {"blocks": "blocks it", "enables": "enables it", "leaves out": "leaves it out"}


def explain_plugin(name: str, *, recipe: str | None, selected: Sequence[str], as_json: bool) -> int:
    """Print the status of the plugin, and every source that says something of it, the one that counted first.

    Raises RequestError when nothing of the name is installed or mentioned, or when a source cannot be read.
    """
    request = read_request(selected, no_plugins=False, environ=os.environ, folder=Path())
    index = scan()
    if recipe is not None:
        request, index = _with_recipe(request, index, recipe)
    verdicts = _verdicts(name, index, request)
    if as_json:
        say_json({"verdicts": [verdict.to_json() for verdict in verdicts]})
        return EXIT_DONE
    for number, verdict in enumerate(verdicts):
        if number:
            say("")
        _say_verdict(verdict)
    return EXIT_DONE


def _with_recipe(request: PluginRequest, index: Index, recipe: str) -> tuple[PluginRequest, Index]:
    """The request with what the recipe says, and the index with the milesfile beside it."""
    from miles_core.recipe.catalog import find_recipe
    from miles_core.recipe.document import read_document
    from miles_core.recipe.milesfile import find_milesfile

    document = read_document(find_recipe(recipe))
    plugins, code = document.data.get("plugins"), document.data.get("code")
    named = [each for each in plugins if isinstance(each, str)] if isinstance(plugins, list) else []
    folders = [each for each in code if isinstance(each, str)] if isinstance(code, list) else []
    milesfile = find_milesfile(document, folders)
    places = [document.place(("plugins", position)).source.where for position in range(len(named))]
    found = index._replace(plugins=(*index.plugins, milesfile)) if milesfile else index
    return request.with_recipe(named, places), found


def _verdicts(name: str, index: Index, request: PluginRequest) -> list[Verdict]:
    """What was decided about every plugin of the name; one that nobody mentions is merely installed."""
    decision = decide(index, request)
    found = names.matching(index.plugins, name)
    if found:
        return [decision.verdict(each) or _unmentioned(each, index, request) for each in found]
    mentioned = [
        each
        for each in decision.verdicts
        if each.plugin is None and names.short_name(each.name) == names.short_name(name)
    ]
    if not mentioned:
        raise RequestError([names.unknown(index, name)])
    return mentioned


def _unmentioned(plugin: InstalledPlugin, index: Index, request: PluginRequest) -> Verdict:
    """What would come of enabling it: its status as listings show it."""
    against = objections(plugin, index, __version__, KNOWN_BAD, request.allowed)
    listed = next(row.status for row in facts_of(index, {}) if row.plugin == plugin)
    status = listed if listed != INSTALLED or not against else against[0].status
    return Verdict(plugin.name, plugin, status, (), tuple(each.problem for each in against))


def _outcome(reason: Reason, winner: Reason | None) -> str:
    if reason.won or winner is None:
        return "counts" if reason.won else "unclear"
    return "agrees" if (reason.says == ENABLES) == (winner.says == ENABLES) else "lost"


def _say_verdict(verdict: Verdict) -> None:
    plugin = verdict.plugin
    where: Mapping[bool, str] = {True: "not installed", False: "not packaged"}
    package = f"{plugin.distribution} {plugin.version}" if plugin and plugin.distribution else where[plugin is None]
    say(f"{verdict.name} ({package}) is {'not installed' if verdict.status == UNKNOWN else verdict.status}")
    if not verdict.reasons:
        say("  no source mentions it; a recipe's plugins:, --plugin or `miles plugins enable` would enable it")
    rows = [(f"  {_outcome(each, verdict.by)}", each.source, each.where, _SAYS[each.says]) for each in verdict.reasons]
    if rows:
        table(("", "source", "where", "says"), rows)
    for problem in verdict.problems:
        say(f"  {problem}")
