"""`miles session …`: arguments and help. What a command does is imported when it is called."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from miles_core.cli.arguments import SETTINGS, Json, NoPlugins, Recipe, Select, Set, Work

session = typer.Typer(help="Sessions: a model behind OpenAI's and Anthropic's APIs, with exact traces.", **SETTINGS)


@session.callback()
def _group() -> None:
    """Keeps `serve` a word of its own, although it is the only command."""


@session.command("serve", epilog="Example: miles session serve recipes/quickstart.yaml --set engine.threads=1")
def session_serve(
    recipe: Recipe,
    host: Annotated[str, typer.Option("--host", help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free one.")] = 0,
    history: Annotated[
        str, typer.Option("--history", metavar="POLICY", help="linear or branching; the recipe's, else linear.")
    ] = "",
    traces: Annotated[
        Path | None, typer.Option("--traces", metavar="DIR", help="Write each session's trajectory when it ends.")
    ] = None,
    set_: Set = None,
    plugin: Select = None,
    no_plugins: NoPlugins = False,
    json: Json = False,
) -> Work:
    """Serve a recipe's model to any program that speaks OpenAI or Anthropic, until Ctrl-C.

    Only the recipe's model, engine and sampling are used; nothing trains. The base URL and the operator's key are
    printed once. docs/sessions.md says what clients can do with them.
    """
    from miles_core.cli.session_serve import serve_sessions

    return partial(
        serve_sessions,
        recipe,
        set_ or [],
        host=host,
        port=port,
        history=history,
        traces=traces,
        plugins=plugin or [],
        no_plugins=no_plugins,
        as_json=json,
    )
