"""`miles families …`: arguments and help; what is done is in `families_pages`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from miles_core.cli.arguments import SETTINGS, Json, Select, Set, Work

families = typer.Typer(help="Model families: list their renderers, check one.", **SETTINGS)


@families.command("list", epilog="Example: miles families list --json")
def families_list(plugin: Select = None, json: Json = False) -> Work:
    """List the models and renderers of the installed plugins, with what was recorded of each."""
    from miles_core.cli.families_pages import list_families

    return partial(list_families, plugin or [], as_json=json)


@families.command("check", epilog="Example: miles families check smollm2 --engine recipes/quickstart.yaml --turns 50")
def families_check(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="A model or renderer, as `use:` names it.")],
    path: Annotated[
        str | None, typer.Option("--path", metavar="DIR", help="Its checkpoint, for its own tokenizer and template.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option("--engine", metavar="RECIPE", help="Also over turns of this recipe's engine.")
    ] = None,
    turns: Annotated[int, typer.Option("--turns", min=1, help="How many turns of the engine.")] = 50,
    conversations: Annotated[int, typer.Option("--conversations", min=1, help="How many are generated.")] = 200,
    set_: Set = None,
    plugin: Select = None,
    record: Annotated[bool, typer.Option("--record", help="Put what was found into the plugin's package.")] = False,
    json: Json = False,
) -> Work:
    """Check that a family's conversations only append, equal the checkpoint's own template, and read back.

    0: every check passed; 1: one failed; 2: the request was wrong.
    """
    from miles_core.cli.families_pages import check_families

    return partial(
        check_families,
        names,
        path=path,
        engine=engine,
        turns=turns,
        conversations=conversations,
        settings=set_ or [],
        plugins=plugin or [],
        record=record,
        as_json=json,
    )
