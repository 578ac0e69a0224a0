"""`miles session serve`: read the recipe, serve, and say where."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from miles_core.cli.output import flush, remark, say
from miles_core.errors import RequestError
from miles_core.host.request import read_request
from miles_core.loop.interruptible import wait_for
from miles_core.loop.serve import serve
from miles_core.recipe.catalog import find_recipe
from miles_core.recipe.service import load_service
from miles_core.session.attach import POLICIES
from miles_core.session.store import Limits


def serve_sessions(
    recipe: str,
    settings: Sequence[str],
    *,
    host: str,
    port: int,
    history: str,
    traces: Path | None,
    limits: Mapping[str, Any],
    plugins: Sequence[str],
    no_plugins: bool,
    as_json: bool,
) -> int:
    """Serve until Ctrl-C or SIGTERM, which is how serving ends well: the code is 0 then."""
    if history and history not in POLICIES:
        raise RequestError(
            f"there is no policy {history!r}", where="--history", mend=f"one of {', '.join(sorted(POLICIES))}"
        )
    bounds = Limits(**limits)
    request = read_request(plugins, no_plugins=no_plugins, environ=os.environ, folder=Path())
    service = load_service(find_recipe(recipe), settings, request)
    serving = False

    def announce(facts: Mapping[str, Any]) -> None:
        nonlocal serving
        serving = True
        _announce(facts, as_json)

    remark(f"starting {service.replicas} engine{'s' if service.replicas > 1 else ''} of {service.card.name}")
    try:
        wait_for(serve(service, announce, host=host, port=port, history=history, traces=traces, limits=bounds))
    except KeyboardInterrupt:
        if not serving:
            raise
        remark("closed")
    return 0


def _announce(facts: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        say(json.dumps(facts))
    else:
        root = facts["base_url"].removesuffix("/v1")
        say(f"base URL      {facts['base_url']}")
        say(f"operator key  {facts['operator_key']}")
        say("open a session, and use its base URL and key in any client:")
        say(f"  curl -X POST {root}/sessions -H 'Authorization: Bearer {facts['operator_key']}'")
        remark("serving until Ctrl-C")
    flush()
