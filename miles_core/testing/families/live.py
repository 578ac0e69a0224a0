"""The invariant over turns that an engine samples: what would be trained on is what the engine returned, in its place.

A run's engine is started and given weights as a run does, and conversations are held through the pure core of the
sessions. What the engine was asked and what it returned is put down before the core sees it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from miles_core.contracts.engine import EngineClient, Finish, GenerateRequest, GenerateResult
from miles_core.contracts.model import Renderer
from miles_core.errors import RequestError
from miles_core.loop.assemble import assemble
from miles_core.loop.record import Recorder
from miles_core.observe.folder import RunFolder
from miles_core.recipe.resolved import Plan
from miles_core.session.attach import Linear
from miles_core.session.collect import sequences
from miles_core.session.conversation import Conversation
from miles_core.session.matching import StrictMatcher
from miles_core.session.messages import read_messages
from miles_core.testing.families.conversations import TEXTS
from miles_core.testing.families.report import Tally
from miles_core.types.sampling import NoiseKey, Sampling
from miles_core.types.sequence import Sequence

LONGEST_ANSWER = 12

Exchange = tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]
"""Prompt, sampled tokens and log-probs of one call."""


def check_live(plan: Plan, turns: int) -> Tally:
    """At least `turns` turns of the recipe's engine. Raises RequestError when the recipe has no model or engine."""
    if plan.model is None or plan.engine is None:
        raise RequestError("the recipe has no model or no engine", mend="name a recipe with `model:` and `engine:`")
    with TemporaryDirectory(prefix="miles-family-") as scratch:
        return asyncio.run(_with_engine(plan, turns, Path(scratch)))


async def _with_engine(plan: Plan, turns: int, scratch: Path) -> Tally:
    folder = RunFolder(scratch / "run")
    folder.path.mkdir()
    ring = await assemble(plan, folder.path, Recorder(folder, run="families", steps=0))
    tally = Tally()
    try:
        await ring.publish(1)
        if ring.renderer is None or ring.model is None:
            raise RequestError("the recipe's model has no renderer")
        context = min([ring.model.card.context, *[(await each.capabilities()).context for each in ring.engines]])
        conversation = 0
        while tally.passed + tally.failed < turns:
            await _converse(tally, ring.renderer, ring.engines[conversation % len(ring.engines)], context, conversation)
            conversation += 1
    finally:
        await ring.close()
    return tally


async def _converse(tally: Tally, renderer: Renderer, engine: EngineClient, context: int, number: int) -> None:
    """One conversation until it is full, cut or long enough; each turn is compared once."""
    rng = random.Random(number)
    core = Conversation(renderer, Linear(), StrictMatcher(), 1000)
    texts = _texts(renderer, rng)
    history = [{"role": "user", "content": next(texts)}]
    log: list[Exchange] = []
    for turn in range(rng.randint(1, 8)):
        pending = core.prepare(read_messages(history))
        room = context - len(pending.tokens) - 1
        if room < 1:
            break
        sampling = Sampling(1.0, min(LONGEST_ANSWER, room), stop_tokens=renderer.stop_tokens)
        noise = NoiseKey(0, "families", f"conversation-{number}", 0, turn)
        request = GenerateRequest(f"{number}/{turn}", pending.tokens, sampling, noise, affinity=f"family/{number}")
        result = await engine.generate(request)
        log.append(_exchange(request, result))
        node = core.commit(pending, request, result)
        (sequence,) = sequences((node,))
        tally.note(
            _agrees(sequence, log), partial("conversation {}, turn {}: tokens differ from the log".format, number, turn)
        )
        if result.finish is Finish.LENGTH:
            break
        history += [dict(node.reply), {"role": "user", "content": next(texts)}]
    if not log:
        raise RequestError(f"the model's context of {context} tokens has no room for one question of this format")


def _texts(renderer: Renderer, rng: random.Random) -> Iterator[str]:
    """Those that the tokenizer takes."""
    good = [text for text in TEXTS if text and _encodes(renderer, text)]
    while True:
        yield rng.choice(good)


def _encodes(renderer: Renderer, text: str) -> bool:
    try:
        renderer.encode(text)
    except ValueError:
        return False
    return True


def _exchange(request: GenerateRequest, result: GenerateResult) -> Exchange:
    return tuple(request.tokens.tolist()), tuple(result.tokens.tolist()), tuple(result.logprobs.tolist())


def _agrees(sequence: Sequence, log: list[Exchange]) -> bool:
    """Every call's prompt begins with all that stood before, and its tokens stand behind it, masked as sampled."""
    tokens, sampled = tuple(sequence.tokens.tolist()), sequence.sampled.tolist()
    mask = [False] * len(tokens)
    if sequence.logprobs is None or tokens != log[-1][0] + log[-1][1]:
        return False
    for prompt, answer, logprobs in log:
        start, stop = len(prompt), len(prompt) + len(answer)
        if tokens[:stop] != prompt + answer or tuple(sequence.logprobs[start:stop].tolist()) != logprobs:
            return False
        mask[start:stop] = [True] * len(answer)
    return bool(mask == sampled)
