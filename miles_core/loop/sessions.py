"""The session service of a run: started only when a phase's generator runs an agent."""

from __future__ import annotations

from collections.abc import Sequence as Several
from typing import TYPE_CHECKING

from miles_core.contracts.capabilities import IMAGES, NEEDS_AGENT
from miles_core.contracts.engine import EngineClient
from miles_core.contracts.lifecycle import RealClock
from miles_core.contracts.model import Renderer
from miles_core.errors import RequestError
from miles_core.recipe.resolved import Plan
from miles_core.runtime.clients import RemoteEngine

if TYPE_CHECKING:
    from miles_core.session.server import SessionServer


async def serve_sessions(
    plan: Plan, clients: EngineClient, renderer: Renderer | None, engines: Several[RemoteEngine]
) -> SessionServer | None:
    """The service, listening on a free port of the loopback interface; None when the plan has no use for it."""
    if not any(NEEDS_AGENT in phase.facts.capabilities.get("generator", ()) for phase in plan.phases):
        return None
    if renderer is None or plan.model_card is None or not engines:
        raise RequestError("an agent's chat needs a model and an engine", mend="add `model:` and `engine:`")
    from miles_core.session.images import ImageRules
    from miles_core.session.server import SessionServer  # an HTTP server is imported by runs that serve one
    from miles_core.session.store import Limits

    longest = await longest_sequence(plan, engines) or plan.model_card.context
    limits = Limits(images=ImageRules(refused=await why_no_images(engines, plan)))
    server = SessionServer(clients, renderer, RealClock(), model=plan.model_card.name, context=longest, limits=limits)
    await server.start()
    return server


async def longest_sequence(plan: Plan, engines: Several[RemoteEngine]) -> int | None:
    """Tokens that the model and every engine take; None when the plan has no model."""
    if plan.model_card is None:
        return None
    return min([plan.model_card.context, *[(await engine.capabilities()).context for engine in engines]])


async def why_no_images(engines: Several[RemoteEngine], plan: Plan | None = None) -> str:
    """Why a conversation may have no images, in words; "" where every engine takes them, and the plan's trainer."""
    for engine in engines:
        if not (await engine.capabilities()).images:
            return f"engine {engine.name!r} takes none"
    for phase in plan.phases if plan is not None else ():
        names = phase.facts.chosen.get("trainer", ())
        if names and IMAGES not in phase.facts.capabilities.get("trainer", frozenset()):
            return f"trainer {names[0]!r} takes none"
    return ""
