"""`miles plugins …`: every command's arguments and help. What a command does is imported when it is called."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from miles_core.cli.arguments import SETTINGS, Json, Work

plugins = typer.Typer(help="Installed plugins: look at them, choose, write and check them.", **SETTINGS)

Plugin = Annotated[str, typer.Argument(metavar="PLUGIN", help="The plugin's name or its distribution's.")]
Plugins = Annotated[
    list[str] | None, typer.Argument(metavar="[PLUGIN]...", help="Names of plugins or distributions; all when absent.")
]


@plugins.command("list", epilog="Example: miles plugins list --json")
def list_(
    all_: Annotated[bool, typer.Option("--all", help="Also shadowed plugins, and how each was installed.")] = False,
    enabled: Annotated[
        bool, typer.Option("--enabled", help="Only what this project and MILES_PLUGINS enable.")
    ] = False,
    requirements: Annotated[
        bool, typer.Option("--requirements", help="As lines for pip install -r, with exact versions.")
    ] = False,
    json: Json = False,
) -> Work:
    """List the installed plugins; nothing of them is imported."""
    from miles_core.cli.plugin_list import list_plugins

    return partial(list_plugins, everything=all_, enabled=enabled, requirements=requirements, as_json=json)


@plugins.command("show", epilog="Example: miles plugins show torch")
def show(name: Plugin, json: Json = False) -> Work:
    """Load a plugin and show what it registers: components, options, hooks, evidence."""
    from miles_core.cli.plugin_page import show_plugin

    return partial(show_plugin, name, as_json=json)


@plugins.command("why", epilog="Example: miles plugins why torch --recipe recipes/quickstart.yaml")
def why(
    name: Plugin,
    recipe: Annotated[str | None, typer.Option("--recipe", metavar="RECIPE", help="Decide as for this recipe.")] = None,
    plugin: Annotated[
        list[str] | None, typer.Option("--plugin", metavar="NAME", help="Decide as with this option of `miles run`.")
    ] = None,
    json: Json = False,
) -> Work:
    """Say who enables or blocks a plugin, and what lost against it."""
    from miles_core.cli.plugin_why import explain_plugin

    return partial(explain_plugin, name, recipe=recipe, selected=plugin or [], as_json=json)


@plugins.command("enable", epilog="Example: miles plugins enable wandb")
def enable(name: Plugin, json: Json = False) -> Work:
    """Enable a plugin for every recipe that is run in this folder (writes miles.toml)."""
    from miles_core.cli.plugin_project import enable_plugin

    return partial(enable_plugin, name, as_json=json)


@plugins.command("disable", epilog="Example: miles plugins disable wandb")
def disable(name: Plugin, json: Json = False) -> Work:
    """Block a plugin for every recipe that is run in this folder (writes miles.toml); imports nothing of it."""
    from miles_core.cli.plugin_project import disable_plugin

    return partial(disable_plugin, name, as_json=json)


@plugins.command("doctor", epilog="Example: miles plugins doctor torch")
def doctor(names: Plugins = None, json: Json = False) -> Work:
    """Look for trouble: damaged metadata, shadowed code, wrong versions, global state that an import changes."""
    from miles_core.cli.plugin_doctor import examine_plugins

    return partial(examine_plugins, names or [], as_json=json)


@plugins.command("verify", epilog="Example: miles plugins verify torch")
def verify(names: Plugins = None, json: Json = False) -> Work:
    """Compare the files of installed plugins with the checksums that their wheels recorded."""
    from miles_core.cli.plugin_verify import verify_plugins

    return partial(verify_plugins, names or [], as_json=json)


@plugins.command("diff", epilog="Example: miles plugins diff runs/first runs/second")
def diff(
    first: Annotated[str, typer.Argument(metavar="RUN_A", help="A run, or a plugins.lock.")],
    second: Annotated[str, typer.Argument(metavar="RUN_B", help="Another one.")],
    runs_dir: Annotated[Path, typer.Option("--runs-dir", metavar="DIR", help="Where runs lie.")] = Path("runs"),
    json: Json = False,
) -> Work:
    """Say how the plugins of two runs differ; the exit code is 0 when they do not, else 1."""
    from miles_core.cli.plugin_diff import compare_runs

    return partial(compare_runs, first, second, runs_dir, as_json=json)


@plugins.command("new", epilog="Example: miles plugins new brevity --kind reward")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The suffix of miles-plugin-NAME.")],
    kind: Annotated[str, typer.Option("--kind", metavar="KIND", help="What it provides, e.g. reward, agent, engine.")],
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="The folder to make; ./miles-plugin-NAME when absent.")
    ] = None,
    json: Json = False,
) -> Work:
    """Make a plugin that installs, runs and passes its own tests at once."""
    from miles_core.cli.plugin_new import make_plugin

    return partial(make_plugin, name, kind=kind, to=to, as_json=json)


@plugins.command("check", epilog="Example: miles plugins check brevity")
def check(
    plugin: Annotated[str, typer.Argument(metavar="PLUGIN", help="An installed plugin, or its source folder.")],
    level: Annotated[
        str | None, typer.Option("--level", metavar="GRADE", help="Fail below this grade: bronze, silver or gold.")
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Write the result into the package, for listings to show.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show every check, not only what is to be mended.")
    ] = False,
    json: Json = False,
) -> Work:
    """Run the conformance kit on a plugin and say what to change."""
    from miles_core.cli.plugin_check import check_plugin

    return partial(check_plugin, plugin, level=level, record=record, as_json=json, verbose=verbose)
