"""`miles plan` and `miles recipes list`, `show`, `schema`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from miles_core.cli.output import say, say_json, table
from miles_core.errors import RequestError


def show_plan(
    recipe: str, settings: Sequence[str], *, plugins: Sequence[str] = (), no_plugins: bool = False, as_json: bool
) -> int:
    from miles_core.host.request import read_request
    from miles_core.recipe.catalog import find_recipe
    from miles_core.recipe.plan import load_plan
    from miles_core.recipe.render import plan_lines, plan_to_json

    request = read_request(plugins, no_plugins=no_plugins, environ=os.environ, folder=Path())
    plan, _ = load_plan(find_recipe(recipe), settings, request)
    if as_json:
        say_json(plan_to_json(plan))
    else:
        for line in plan_lines(plan):
            say(line)
    return 0


def list_recipes(*, as_json: bool) -> int:
    from miles_core.recipe import catalog

    found = catalog.list_recipes()
    if as_json:
        say_json([entry.to_json() for entry in found])
    elif found:
        rows = [(entry.name, entry.evidence, entry.origin, _first_sentence(entry.summary)) for entry in found]
        table(("recipe", "evidence", "from", "summary"), rows)
    else:
        say("no recipes in recipes/ or in installed plugins")
    return 0


def show_recipe(recipe: str, *, as_json: bool) -> int:
    from miles_core.recipe.catalog import find_recipe

    path = find_recipe(recipe)
    text = _read(path)
    if as_json:
        say_json({"file": str(path), "text": text})
    else:
        say(text.rstrip("\n"))
    return 0


def show_schema(plugins: Sequence[str] | None) -> int:
    from miles_core.recipe.json_schema import recipe_schema

    say_json(recipe_schema(plugins))
    return 0


def _first_sentence(summary: str) -> str:
    """What a listing has room for; `--json` has all of it."""
    end = summary.find(". ")
    return summary if end < 0 else summary[: end + 1]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(
            f"the recipe cannot be read: {error}", where=str(path), mend="see `miles recipes list`, or give its path"
        ) from error
