"""A generator: makes one trajectory out of what the engine sampled, token for token."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from miles_core.contracts.engine import PauseMode
from miles_core.contracts.lifecycle import RealClock
from miles_core.contracts.rollout import GenerateContext, Generator
from miles_core.errors import WorkerDied
from miles_core.testing.fakes.char_tool_renderer import CharToolRenderer
from miles_core.testing.fakes.contexts import make_attempt, make_generate_context
from miles_core.testing.fakes.engine_log import Exchange
from miles_core.testing.fakes.scripted_engine import ScriptedEngine
from miles_core.testing.kit.check import Grade, check, expect, inapplicable
from miles_core.testing.kit.living import cancelled, nothing_left, settle, soon
from miles_core.testing.kit.samples import renderable_tasks, snapshot
from miles_core.testing.kit.stalls import expect_free_loop
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.sampling import Sampling
from miles_core.types.sequence import Sequence
from miles_core.types.trajectory import Status, Trajectory

VERSION = 3
LONG = "abcdefgh " * 40


@check("generator", Grade.GOLD, "its trajectory is of its attempt, and has no reward unless the attempt brought one")
async def answers_its_attempt(subject: ComponentSubject) -> None:
    generator, attempt = _generator(subject), make_attempt(renderable_tasks(subject, 1)[0], group=4, index=2)
    trajectory = await soon(generator.generate(attempt, _context(ScriptedEngine())), "generate", "return a Trajectory")
    expect(isinstance(trajectory, Trajectory), f"it returned {trajectory!r:.100}", "return a miles_core.Trajectory")
    found = (trajectory.id, trajectory.task_id, trajectory.index)
    wanted = (attempt.id, attempt.task.id, attempt.index)
    expect(found == wanted, f"id, task and index are {found}, of the attempt {wanted}", "take them from the attempt")
    usual = trajectory.status in (Status.COMPLETED, Status.TRUNCATED)
    expect(usual, f"its status is {trajectory.status}", "nothing failed here: completed, or truncated at the limit")
    expect(
        any(s.sampled.any() for s in trajectory.sequences), "nothing is to be learned from it", "mark what is sampled"
    )
    expect(trajectory.reward is None, f"its reward is {trajectory.reward}", "leave scoring to rewards: None")


@check("generator", Grade.GOLD, "its sampled tokens, log-probs and versions are exactly what the engine gave")
async def token_exact(subject: ComponentSubject) -> None:
    generator = _needing_engine(subject)
    engine = ScriptedEngine(version=VERSION)
    attempt = make_attempt(renderable_tasks(subject, 1)[0], sampling=Sampling(temperature=0.7, max_new_tokens=12))
    trajectory = await soon(generator.generate(attempt, _context(engine)), "generate", "return a Trajectory")
    log = {exchange.request.id: exchange for exchange in engine.log}
    expect(len(log) == len(engine.log), "two requests have one id", "name each request, e.g. f'{attempt.id}/{turn}'")
    for sequence in trajectory.sequences:
        _expect_exact(sequence, log)
    for exchange in engine.log:
        noise = exchange.request.noise
        expect(
            noise == attempt.noise(noise.turn),
            f"a request has the noise {noise}",
            "give request.noise = attempt.noise(turn): nothing else may decide the randomness",
        )
        expect(exchange.request.affinity, "a request has no affinity", "name the session that it belongs to")


@check("generator", Grade.GOLD, "the same attempt gives the same trajectory, alone or among others")
async def reproducible(subject: ComponentSubject) -> None:
    generator = _generator(subject)
    tasks = renderable_tasks(subject, 3)
    attempts = [make_attempt(task, group=g, index=i) for g, task in enumerate(tasks) for i in range(2)]
    alone = [snapshot(await _generate(generator, attempt, ScriptedEngine())) for attempt in attempts]
    engine = ScriptedEngine()
    together = await asyncio.gather(*(_generate(generator, attempt, engine) for attempt in attempts))
    expect(
        [snapshot(each) for each in together] == alone,
        "an attempt gives another trajectory among others than alone",
        "keep nothing of an attempt on the object; randomness comes from attempt.noise alone",
    )


@check("generator", Grade.GOLD, "an answer that hits the token limit is truncated, an aborted one is aborted")
async def ends_are_told_apart(subject: ComponentSubject) -> None:
    generator = _needing_engine(subject)
    attempt = make_attempt(renderable_tasks(subject, 1)[0], sampling=Sampling(max_new_tokens=5))
    cut = await _generate(generator, attempt, ScriptedEngine(lambda _: LONG))
    expect(cut.status is Status.TRUNCATED, f"its status is {cut.status}", "Finish.LENGTH makes Status.TRUNCATED")
    engine = ScriptedEngine(lambda _: LONG)
    engine.hang()
    task = asyncio.ensure_future(_generate(generator, attempt, engine))
    await settle()
    await engine.pause(PauseMode.ABORT)
    engine.hang(False)
    aborted: Trajectory = await soon(task, "generate after an abort", "return what there is")
    expect(aborted.status is Status.ABORTED, f"its status is {aborted.status}", "Finish.ABORT makes Status.ABORTED")


@check("generator", Grade.GOLD, "a dead engine is raised as it is, and never becomes an answer")
async def failures_are_raised(subject: ComponentSubject) -> None:
    generator = _needing_engine(subject)
    engine = ScriptedEngine()
    engine.die()
    with nothing_left("a failed attempt"):
        try:
            found = await _generate(generator, make_attempt(renderable_tasks(subject, 1)[0]), engine)
        except WorkerDied:
            return
        except BaseException as error:
            expect(False, f"WorkerDied became {type(error).__name__}: {error}", "let the core's errors through")
    expect(False, f"the engine died, and it returned {found!r:.200}", "let the core's errors through: the run must end")


@check("generator", Grade.GOLD, "when it is cancelled, it ends at once, and nothing goes on")
async def cancels(subject: ComponentSubject) -> None:
    generator = _needing_engine(subject)
    engine = ScriptedEngine()
    engine.hang()
    with nothing_left("a cancelled attempt"):
        task = asyncio.ensure_future(_generate(generator, make_attempt(renderable_tasks(subject, 1)[0]), engine))
        await settle()
        await cancelled(task, "generate")
        await settle()
    running = (await engine.stats()).running
    expect(not running, f"{running} requests still run in the engine", "await requests, do not detach them")


@check("generator", Grade.GOLD, "while it works, the event loop goes on: it is the driver's, which all attempts share")
async def leaves_the_loop_free(subject: ComponentSubject) -> None:
    generator, attempt = _generator(subject), make_attempt(renderable_tasks(subject, 1)[0])
    await expect_free_loop(lambda: _generate(generator, attempt, ScriptedEngine()), "generate")


def _generator(subject: ComponentSubject) -> Generator:
    if "needs-agent" in subject.registered.component.capabilities:
        inapplicable("it makes trajectories out of sessions, not of requests: see the checks of sessions")
    generator: Generator = subject.build()
    return generator


def _needing_engine(subject: ComponentSubject) -> Generator:
    generator = _generator(subject)
    if not generator.needs_engine:
        inapplicable("it asks no engine")
    return generator


def _context(engine: ScriptedEngine) -> GenerateContext:
    return make_generate_context(engine, renderer=CharToolRenderer(), clock=RealClock())


async def _generate(generator: Generator, attempt: object, engine: ScriptedEngine) -> Trajectory:
    return await generator.generate(attempt, _context(engine))  # type: ignore[arg-type]


def _expect_exact(sequence: Sequence, log: Mapping[str, Exchange]) -> None:
    """Every span is what one request sampled, after exactly the tokens that the engine was given."""
    if sequence.logprobs is None:
        expect(False, "a sequence that an engine sampled has no log-probs", "keep result.logprobs")
        return
    for span in sequence.spans:
        exchange = log.get(span.request)
        if exchange is None:
            skip_reason = f"a span names the request {span.request!r}, which nobody made"
            expect(False, skip_reason, "Span.request is the id of the GenerateRequest")
            return
        start = len(exchange.prompt)
        expect(
            tuple(sequence.tokens[:start].tolist()) == exchange.prompt,
            f"before span [{span.start}, {span.stop}) stand other tokens than the engine was given",
            "keep the prompt's ids as they were sent: text is never tokenized again",
        )
        part = slice(span.start - start, span.stop - start)
        for what, ours, theirs in (
            ("tokens", sequence.tokens, exchange.tokens),
            ("logprobs", sequence.logprobs, exchange.logprobs),
            ("versions", sequence.versions, exchange.versions),
        ):
            found, wanted = ours[span.start : span.stop].tolist(), list(theirs[part])
            expect(found == wanted, f"{what} of a span are {found}, the engine gave {wanted}", "copy the result's own")
        temperature = exchange.request.sampling.temperature
        expect(span.temperature == temperature, f"a span has temperature {span.temperature}", f"it was {temperature}")
