"""Attempts and the context that generators are given."""

from __future__ import annotations

from miles_core.contracts.engine import EngineClient
from miles_core.contracts.lifecycle import Clock
from miles_core.contracts.model import Renderer
from miles_core.contracts.rollout import Agent, Attempt, GenerateContext
from miles_core.contracts.sessions import Sessions
from miles_core.testing.fakes.char_renderer import CharRenderer
from miles_core.testing.fakes.makers import make_task
from miles_core.testing.fakes.manual_clock import ManualClock
from miles_core.testing.fakes.scripted_engine import ScriptedEngine
from miles_core.types.sampling import Sampling
from miles_core.types.task import Task


def make_attempt(
    task: Task | None = None,
    *,
    id: str = "",
    group: int = 0,
    draw: int = 0,
    index: int = 0,
    purpose: str = "train",
    sampling: Sampling | None = None,
    seed: int = 1,
) -> Attempt:
    """One attempt to make; named `g<group>/<index>` unless given an id."""
    return Attempt(
        id or f"g{group}/{index}",
        task or make_task(),
        group,
        draw,
        index,
        purpose,
        sampling or Sampling(max_new_tokens=16),
        seed,
    )


def make_generate_context(
    engines: EngineClient | None = None,
    *,
    renderer: Renderer | None = None,
    clock: Clock | None = None,
    deadline: float | None = None,
    agent: Agent | None = None,
    agent_name: str = "",
    sessions: Sessions | None = None,
) -> GenerateContext:
    """What a generator works with. Engines, renderer and clock that are not given are fakes."""
    return GenerateContext(
        engines or ScriptedEngine(),
        renderer or CharRenderer(),
        clock or ManualClock(),
        deadline,
        agent,
        agent_name,
        sessions,
    )
