"""Arguments that several commands share, each declared once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

Work = Callable[[], int]
"""What a command returns: what is to be done. Typer swallows a KeyboardInterrupt and what it says."""

SETTINGS: dict[str, Any] = {
    "rich_markup_mode": None,
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}

Recipe = Annotated[str, typer.Argument(metavar="RECIPE", help="A YAML file, or the name of a packaged recipe.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's folder, its name, or the beginning of it.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a value, e.g. schedule.group_size=4.")
]
Select = Annotated[
    list[str] | None,
    typer.Option("--plugin", metavar="NAME", help="Enable a plugin; no:NAME blocks one. May be repeated."),
]
NoPlugins = Annotated[bool, typer.Option("--no-plugins", help="Only what the core brings, whoever enables more.")]
StrictPlugins = Annotated[
    bool,
    typer.Option(
        "--strict-plugins",
        envvar="MILES_STRICT_PLUGINS",
        help="End the run when an event hook of a plugin raises, instead of counting it.",
    ),
]
RunsDir = Annotated[Path, typer.Option("--runs-dir", metavar="DIR", help="Where runs lie.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors and the result.")]
Plain = Annotated[bool, typer.Option("--plain", help="One line for each step instead of a live screen.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]

RUNS = Path("runs")
