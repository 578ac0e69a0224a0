"""The command `miles simulate`: its arguments and help. What it does is imported when it is called."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from miles_core.cli.arguments import RUNS, Json, NoPlugins, Quiet, Recipe, RunsDir, Select, Set, Work


def simulate(
    recipe: Recipe,
    set_: Set = None,
    engines: Annotated[
        int | None, typer.Option("--engines", metavar="N", help="Engines to model; the recipe's replicas when absent.")
    ] = None,
    trajectories: Annotated[
        int | None,
        typer.Option(
            "--trajectories", metavar="M", help="How many to train, in whole batches; the recipe's steps when absent."
        ),
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(
            "--lengths",
            metavar="SOURCE",
            help="lognormal:mu=6,sigma=1.5,prompt=512, constant:tokens=256, a run, or a CSV or Parquet file.",
        ),
    ] = None,
    like: Annotated[
        str | None, typer.Option("--like", metavar="RUN", help="Take speeds, and lengths unless given, from a run.")
    ] = None,
    assume: Annotated[
        list[str] | None,
        typer.Option("--assume", metavar="KEY=VALUE", help="A speed or a chance, e.g. slots=128. May be repeated."),
    ] = None,
    phase: Annotated[
        str | None, typer.Option("--phase", metavar="NAME", help="Which phase, where several ask engines.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="The recipe's when absent.")] = None,
    runs_dir: RunsDir = RUNS,
    plugin: Select = None,
    no_plugins: NoPlugins = False,
    quiet: Quiet = False,
    json: Json = False,
) -> Work:
    """Forecast how a recipe's schedule keeps engines and trainer busy, without running them.

    The recipe's own schedule, rollout, buffer and policies, in virtual time; engines and trainer are modelled.
    """
    from miles_core.cli.simulate_page import Wish, simulate_recipe

    wish = Wish(engines, trajectories, lengths, like, tuple(assume or ()), phase, seed)
    return partial(
        simulate_recipe,
        recipe,
        set_ or [],
        wish,
        runs_dir=runs_dir,
        plugins=plugin or [],
        no_plugins=no_plugins,
        quiet=quiet,
        as_json=json,
    )
