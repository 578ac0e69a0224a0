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


@session.command(
    "serve",
    epilog="Example: miles session serve recipes/quickstart.yaml --set engine.threads=1 --sessions 200 "
    "--idle-seconds 600 --traces traces",
)
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
    sessions: Annotated[int, typer.Option("--sessions", metavar="N", help="Open at once; then 429.")] = 10_000,
    nodes: Annotated[
        int, typer.Option("--nodes", metavar="N", help="Turns in one session, those asked again included; then 409.")
    ] = 1024,
    body_bytes: Annotated[
        int, typer.Option("--body-bytes", metavar="BYTES", help="Of one request; larger ones are 413.")
    ] = 32 * 2**20,
    idle_seconds: Annotated[
        float, typer.Option("--idle-seconds", metavar="SECONDS", help="After which a session that nobody calls ends.")
    ] = 4 * 3600.0,
    call_seconds: Annotated[
        float, typer.Option("--call-seconds", metavar="SECONDS", help="That sampling one turn may take; then 504.")
    ] = 3600.0,
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
        limits={
            "sessions": sessions,
            "nodes": nodes,
            "body_bytes": body_bytes,
            "idle_seconds": idle_seconds,
            "call_seconds": call_seconds,
        },
        plugins=plugin or [],
        no_plugins=no_plugins,
        as_json=json,
    )
