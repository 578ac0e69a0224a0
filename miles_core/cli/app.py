"""The command line: every command's arguments and help. What a command does is imported when it is called.

Typer is used without rich, and nothing else is imported here: `miles --help` is read many times a day.
`--version` and `--traceback` are taken before the parser sees them (`entry`, `guard`).
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from miles_core.cli.arguments import (
    RUNS,
    SETTINGS,
    Json,
    NoPlugins,
    Plain,
    Quiet,
    Recipe,
    Run,
    RunsDir,
    Select,
    Set,
    StrictPlugins,
    Work,
)
from miles_core.cli.families_commands import families
from miles_core.cli.plugin_commands import plugins
from miles_core.cli.results import results_alone
from miles_core.cli.session_commands import session
from miles_core.cli.simulate_command import simulate
from miles_core.errors import EXIT_DONE, EXIT_INTERRUPTED

app = typer.Typer(
    help="Reinforcement-learning post-training of language models, from plugins.",
    epilog="miles --version prints the version. Any command takes --traceback (or set MILES_TRACEBACK=1).",
    **SETTINGS,
)
recipes = typer.Typer(help="Recipes: list them, show one, print their JSON Schema.", **SETTINGS)
runs = typer.Typer(help="Runs: list them, show one, export its model.", **SETTINGS)
app.add_typer(recipes, name="recipes")
app.add_typer(plugins, name="plugins")
app.add_typer(families, name="families")
app.add_typer(runs, name="runs")
app.add_typer(session, name="session")


def command_line(arguments: Sequence[str]) -> int:
    """Parse, then call. Raises what the command raises, and the parser's own errors.

    Commands return what is to be done instead of doing it, since typer swallows a KeyboardInterrupt and what it says.
    """
    words = list(arguments) or ["--help"]
    found = typer.main.get_command(app).main(args=words, prog_name="miles", standalone_mode=False)
    gc.enable()  # `entry` put it off
    if callable(found):
        with results_alone():
            return int(found())
    if found == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    return found if isinstance(found, int) else EXIT_DONE


@app.command(epilog="Example: miles run recipes/quickstart.yaml --set steps=4")
def run(
    recipe: Recipe,
    set_: Set = None,
    name: Annotated[str | None, typer.Option("--name", help="The run's name; the recipe's when absent.")] = None,
    runs_dir: RunsDir = RUNS,
    locked: Annotated[
        Path | None, typer.Option("--locked", metavar="FILE", help="Refuse other plugins than this plugins.lock.")
    ] = None,
    plugin: Select = None,
    no_plugins: NoPlugins = False,
    strict_plugins: StrictPlugins = False,
    trace_plugins: Annotated[
        Path | None, typer.Option("--trace-plugins", metavar="FILE", help="Write a JSON line for each hook call.")
    ] = None,
    quiet: Quiet = False,
    plain: Plain = False,
    json: Json = False,
) -> Work:
    """Run a recipe.

    Plugins are chosen by --plugin, then MILES_PLUGINS, then miles.toml here, then the recipe; `miles plan` shows who
    enabled each.
    """
    from miles_core.cli.work import run_recipe, view_of

    return partial(
        run_recipe,
        recipe,
        set_ or [],
        name=name,
        runs_dir=runs_dir,
        locked=locked,
        view=view_of(quiet, plain),
        as_json=json,
        plugins=plugin or [],
        no_plugins=no_plugins,
        strict_plugins=strict_plugins,
        trace_plugins=trace_plugins,
    )


@app.command(epilog="Example: miles resume quickstart")
def resume(
    run: Run,
    runs_dir: RunsDir = RUNS,
    strict_plugins: StrictPlugins = False,
    quiet: Quiet = False,
    plain: Plain = False,
    json: Json = False,
) -> Work:
    """Go on with a run from its last checkpoint, with exactly the plugins that it recorded."""
    from miles_core.cli.work import resume_run, view_of

    view = view_of(quiet, plain)
    return partial(resume_run, run, runs_dir=runs_dir, view=view, as_json=json, strict_plugins=strict_plugins)


@app.command("eval", epilog="Example: miles eval quickstart --step 8 --set 'evaluate[0].attempts=4'")
def evaluate(
    run: Run,
    runs_dir: RunsDir = RUNS,
    step: Annotated[
        int | None, typer.Option("--step", metavar="N", help="The checkpoint after N batches; the last when absent.")
    ] = None,
    set_: Set = None,
    quiet: Quiet = False,
    plain: Plain = False,
    json: Json = False,
) -> Work:
    """Measure a checkpoint of a run with its recipe's evaluators, and print scores with their intervals."""
    from miles_core.cli.eval_command import evaluate_run
    from miles_core.cli.work import view_of

    view = view_of(quiet, plain)
    return partial(evaluate_run, run, runs_dir, step=step, settings=set_ or [], view=view, as_json=json)


@app.command(epilog="Example: miles plan recipes/quickstart.yaml --json")
def plan(
    recipe: Recipe, set_: Set = None, plugin: Select = None, no_plugins: NoPlugins = False, json: Json = False
) -> Work:
    """Show what a recipe resolves to, and where every value and plugin came from; start nothing."""
    from miles_core.cli.recipe_pages import show_plan

    return partial(show_plan, recipe, set_ or [], plugins=plugin or [], no_plugins=no_plugins, as_json=json)


@app.command(epilog="Example: miles audit quickstart --json")
def audit(run: Run, runs_dir: RunsDir = RUNS, json: Json = False) -> Work:
    """Prove of a run that nothing was lost and nothing was trained twice."""
    from miles_core.cli.audit_page import audit_run

    return partial(audit_run, run, runs_dir, as_json=json)


app.command(epilog="Example: miles simulate recipes/quickstart-async.yaml --engines 1000 --trajectories 100000")(
    simulate
)


@recipes.command("list", epilog="Example: miles recipes list --json")
def recipes_list(json: Json = False) -> Work:
    """List the recipes here and in installed plugins."""
    from miles_core.cli.recipe_pages import list_recipes

    return partial(list_recipes, as_json=json)


@recipes.command("show", epilog="Example: miles recipes show quickstart")
def recipes_show(recipe: Recipe, json: Json = False) -> Work:
    """Print a recipe."""
    from miles_core.cli.recipe_pages import show_recipe

    return partial(show_recipe, recipe, as_json=json)


@recipes.command("schema", epilog="Example: miles recipes schema > recipe.schema.json")
def recipes_schema(
    plugin: Annotated[
        list[str] | None, typer.Option("--plugin", metavar="NAME", help="Only these plugins; all when absent.")
    ] = None,
) -> Work:
    """Print the JSON Schema of recipes over the installed plugins."""
    from miles_core.cli.recipe_pages import show_schema

    return partial(show_schema, plugin)


@runs.command("list", epilog="Example: miles runs list --json")
def runs_list(runs_dir: RunsDir = RUNS, json: Json = False) -> Work:
    """List the runs, oldest first."""
    from miles_core.cli.run_pages import list_all

    return partial(list_all, runs_dir, as_json=json)


@runs.command("show", epilog="Example: miles runs show quickstart")
def runs_show(run: Run, runs_dir: RunsDir = RUNS, json: Json = False) -> Work:
    """Show how a run stands."""
    from miles_core.cli.run_pages import show_run

    return partial(show_run, run, runs_dir, as_json=json)


@runs.command("export", epilog="Example: miles runs export quickstart --to exported")
def runs_export(
    run: Run,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="A folder that does not exist yet.")],
    runs_dir: RunsDir = RUNS,
    json: Json = False,
) -> Work:
    """Write a run's model as a Hugging Face directory that transformers loads."""
    from miles_core.cli.run_pages import export_run

    return partial(export_run, run, to, runs_dir, as_json=json)
