"""An agent: runs an environment against a chat endpoint, ends when it is told to, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from miles_core.contracts.rollout import Agent, Episode, Outcome
from miles_core.testing.fakes.chat import ScriptedChat
from miles_core.testing.kit.check import Grade, check, expect, fail
from miles_core.testing.kit.living import SOON, cancelled, nothing_left, soon
from miles_core.testing.kit.processes import children
from miles_core.testing.kit.samples import sample_tasks
from miles_core.testing.kit.stalls import expect_free_loop
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.sampling import Sampling

KEY = "session-key"
PATIENCE = 15.0
"""Seconds in which an agent has made its first call."""
CALL_IT = "send the conversation to episode.base_url + '/chat/completions'"


@check("agent", Grade.GOLD, "it asks the endpoint that it was given, with its key, and ends with an Outcome")
async def completes(subject: ComponentSubject) -> None:
    agent: Agent = subject.build()
    with nothing_left("an episode"):
        async with ScriptedChat(["3"]) as chat:
            outcome = await agent.run(_episode(subject, chat))
    expect(isinstance(outcome, Outcome), f"run returned {outcome!r:.100}", "return a miles_core.Outcome")
    expect(chat.calls, "it never called the endpoint", CALL_IT)
    keys = set(chat.keys)
    expect(keys == {KEY}, f"it came with the keys {sorted(keys)}", "send episode.api_key as the bearer token")


@check("agent", Grade.GOLD, "several episodes at once do not mix")
async def episodes_apart(subject: ComponentSubject) -> None:
    agent: Agent = subject.build()
    with nothing_left("three episodes"):
        async with ScriptedChat(["3"]) as chat:
            tasks = sample_tasks(subject, 3)
            await asyncio.gather(
                *(agent.run(replace(_episode(subject, chat), task=task, api_key=task.id)) for task in tasks)
            )
    given, came = {task.id for task in tasks}, set(chat.keys)
    expect(came <= given, f"a call came with the key {sorted(came - given)}", "send episode.api_key, of this episode")
    if missing := sorted(given - came):
        expect(came, f"none of {len(tasks)} episodes called the endpoint", CALL_IT)
        detail = f"no call came with the keys {missing} of other episodes, only with {sorted(came)}"
        expect(False, detail, "keep nothing of an episode on the object: episodes run at once")


@check("agent", Grade.GOLD, "it ends soon after `cancelled` is set, and leaves neither task nor process")
async def stops_when_told(subject: ComponentSubject) -> None:
    agent: Agent = subject.build()
    before = children()
    with nothing_left("an episode that was told to stop"):
        async with ScriptedChat() as chat:
            chat.hang()
            episode = _episode(subject, chat)
            running = asyncio.ensure_future(agent.run(episode))
            await _first_call(chat, running)
            episode.cancelled.set()
            done, _ = await asyncio.wait({running}, timeout=SOON)
            if not done:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            expect(
                done, f"it goes on {SOON:g} s after `cancelled` was set", "wait for episode.cancelled beside the call"
            )
            await asyncio.gather(running, return_exceptions=True)
    _expect_no_children(before)


@check("agent", Grade.GOLD, "when its task is cancelled, it ends at once, and leaves neither task nor process")
async def cancels(subject: ComponentSubject) -> None:
    agent: Agent = subject.build()
    before = children()
    with nothing_left("a cancelled episode"):
        async with ScriptedChat() as chat:
            chat.hang()
            running = asyncio.ensure_future(agent.run(_episode(subject, chat)))
            await _first_call(chat, running)
            await cancelled(running, "run")
    _expect_no_children(before)


@check("agent", Grade.GOLD, "an error of the endpoint is its failure, and never a score")
async def errors_are_no_score(subject: ComponentSubject) -> None:
    agent: Agent = subject.build()
    with nothing_left("an episode whose endpoint fails"):
        async with ScriptedChat() as chat:
            chat.answer_with(500)
            try:
                outcome = await asyncio.wait_for(agent.run(_episode(subject, chat)), 30)
            except TimeoutError:
                expect(False, "it goes on for 30 s against an endpoint that answers 500", "give up after a few tries")
                return
            except Exception:
                return
    scored = outcome.reward is not None
    expect(not scored, f"the endpoint answered 500, and its reward is {outcome.reward}", "raise: no verdict is not 0")


@check("agent", Grade.GOLD, "while it runs, the event loop goes on: it is the driver's, which all attempts share")
async def leaves_the_loop_free(subject: ComponentSubject) -> None:
    agent: Agent = subject.build()
    async with ScriptedChat(["3"]) as chat:
        await expect_free_loop(lambda: agent.run(_episode(subject, chat)), "run")


def _episode(subject: ComponentSubject, chat: ScriptedChat) -> Episode:
    return Episode(sample_tasks(subject, 1)[0], chat.base_url, KEY, Sampling(max_new_tokens=16), None, asyncio.Event())


async def _first_call(chat: ScriptedChat, running: asyncio.Task[Outcome]) -> None:
    """Wait until the agent waits for the endpoint."""
    end = time.monotonic() + PATIENCE
    while not chat.open_calls and not running.done() and time.monotonic() < end:
        await asyncio.sleep(0.02)
    if running.done():
        outcome = await soon(running, "run", "")
        fail(f"it ended at once with {outcome!r:.100}, {_calls(chat)}", CALL_IT)
    expect(chat.open_calls, f"no call within {PATIENCE:g} s", CALL_IT)


def _calls(chat: ScriptedChat) -> str:
    return "without waiting for the answer to its call" if chat.calls else "without a call of the endpoint"


def _expect_no_children(before: frozenset[int]) -> None:
    left = children() - before
    expect(not left, f"it leaves the processes {sorted(left)}", "end every process that it starts, in `finally`")
