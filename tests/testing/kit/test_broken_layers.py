"""Broken generators and agents: each check catches what it is for."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from dataclasses import replace

import pytest
from trying import try_check

from miles_core.contracts.rollout import Outcome
from miles_core.rollout.agent import AgentGenerator, AgentGeneratorOptions
from miles_core.rollout.single_turn import SingleTurn
from miles_core.testing.kit.check import CheckResult
from miles_core.types.trajectory import Status, Trajectory


class WrongId(SingleTurn):
    async def generate(self, attempt, context):
        return replace(await super().generate(attempt, context), id="0")


class Rewarding(SingleTurn):
    async def generate(self, attempt, context):
        return replace(await super().generate(attempt, context), reward=1.0)


class OtherTokens(SingleTurn):
    async def generate(self, attempt, context):
        trajectory = await super().generate(attempt, context)
        row = trajectory.sequences[0]
        tokens = row.tokens.copy()
        tokens[-1] += 1
        return replace(trajectory, sequences=(replace(row, tokens=tokens),))


class OtherNoise(SingleTurn):
    async def generate(self, attempt, context):
        return await super().generate(replace(attempt, seed=attempt.seed + 1), context)


class Mixing(SingleTurn):
    async def generate(self, attempt, context):
        self.attempt = attempt
        await asyncio.sleep(0)
        return replace(await super().generate(self.attempt, context), id=attempt.id)


class AlwaysCompleted(SingleTurn):
    async def generate(self, attempt, context):
        return replace(await super().generate(attempt, context), status=Status.COMPLETED)


class FailureAsData(SingleTurn):
    async def generate(self, attempt, context):
        try:
            return await super().generate(attempt, context)
        except Exception:
            return Trajectory(attempt.id, attempt.task.id, attempt.index, (), Status.FAILED)


class OtherError(SingleTurn):
    async def generate(self, attempt, context):
        try:
            return await super().generate(attempt, context)
        except Exception as error:
            raise ValueError("something") from error


class Detached(SingleTurn):
    async def generate(self, attempt, context):
        return await asyncio.shield(asyncio.ensure_future(super().generate(attempt, context)))


class Deaf(SingleTurn):
    async def generate(self, attempt, context):
        while True:
            try:
                return await super().generate(attempt, context)
            except asyncio.CancelledError:
                if getattr(self, "told", 0) > 0:
                    raise
                self.told = getattr(self, "told", 0) + 1


class OfAgents(AgentGenerator):
    """A good generator of agents."""

    def __init__(self, options, context):
        super().__init__(AgentGeneratorOptions(grace_seconds=0.0), context)


class NeverCloses(OfAgents):
    async def generate(self, attempt, context):
        class Sessions:
            def __getattr__(self, name):
                return getattr(context.sessions, name)

            async def close(self, key):
                pass

        return await super().generate(attempt, replace(context, sessions=Sessions()))


class AgentFailureAsData(OfAgents):
    generate = FailureAsData.generate


class DetachedAgent(OfAgents):
    async def generate(self, attempt, context):
        return await asyncio.shield(asyncio.ensure_future(super().generate(attempt, context)))


class NoDeadline(OfAgents):
    def _deadline(self, context):
        return None


class Chatting:
    """A good agent: one call with what the standard library has, in a thread that a closed connection ends."""

    reward = 1.0

    def __init__(self, options, context):
        pass

    async def run(self, episode):
        calling = asyncio.ensure_future(self.call(episode))
        told = asyncio.ensure_future(episode.cancelled.wait())
        try:
            await asyncio.wait({calling, told}, return_when=asyncio.FIRST_COMPLETED)
            return Outcome(self.reward if calling.done() and calling.result() else None)
        finally:
            for each in (calling, told):
                each.cancel()
            await asyncio.gather(calling, told, return_exceptions=True)

    async def call(self, episode):
        host, port = episode.base_url.removeprefix("http://").removesuffix("/v1").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            body = json.dumps({"model": "any", "messages": [{"role": "user", "content": "3?"}]})
            head = f"POST /v1/chat/completions HTTP/1.1\r\nauthorization: Bearer {self.key(episode)}\r\n"
            writer.write(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
            status = int((await reader.readline()).split()[1])
            if status != 200:
                raise OSError(f"the endpoint answered {status}")
            return True
        finally:
            writer.close()

    def key(self, episode):
        return episode.api_key


class OtherKey(Chatting):
    def key(self, episode):
        return "another"


class CallsNobody(Chatting):
    async def run(self, episode):
        return Outcome(1.0)


class OneKeyForAll(Chatting):
    def key(self, episode):
        self.kept = getattr(self, "kept", episode.api_key)
        return self.kept


class DeafAgent(Chatting):
    async def run(self, episode):
        return Outcome(1.0 if await self.call(episode) else None)


class Stubborn(Chatting):
    async def run(self, episode):
        try:
            return await super().run(episode)
        except asyncio.CancelledError:
            return Outcome(0.0)


class ScoresErrors(Chatting):
    async def run(self, episode):
        try:
            return await super().run(episode)
        except OSError:
            return Outcome(0.0)


class LeavesTask(Chatting):
    async def run(self, episode):
        self.task = asyncio.ensure_future(asyncio.sleep(60))
        return await super().run(episode)


class Talking(Chatting):
    """A good agent of three turns."""

    async def run(self, episode):
        messages = [{"role": "system", "content": "Play."}, {"role": "assistant", "content": "Ready."}]
        messages += episode.task.messages
        for _ in range(3):
            message = await self.ask(episode, messages)
            messages += [self.kept(message), {"role": "user", "content": "No."}]
        return Outcome(0.0)

    async def ask(self, episode, messages):
        body = json.dumps({"model": "any", "messages": messages, **self.more()}).encode()
        request = urllib.request.Request(f"{episode.base_url}/chat/completions", body)
        with await asyncio.to_thread(urllib.request.urlopen, request) as response:
            return json.load(response)["choices"][0]["message"]

    def kept(self, message):
        return {**message, "refusal": None}

    def more(self):
        return {}


class Trims(Talking):
    def kept(self, message):
        return {"role": "assistant", "content": message["content"].strip()}


class Narrates(Talking):
    def kept(self, message):
        return {"role": "assistant", "content": "I guessed."}


class Reformats(Talking):
    def more(self):
        parameters = {"type": "object", "properties": {"at": {"type": "integer"}}}
        return {"tools": [{"type": "function", "function": {"name": "look", "parameters": parameters}}]}

    def kept(self, message):
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        return message


class Sleeps(SingleTurn):
    async def generate(self, attempt, context):
        time.sleep(0.3)
        return await super().generate(attempt, context)


class SleepyAgent(Chatting):
    async def run(self, episode):
        outcome = await super().run(episode)
        time.sleep(0.3)
        return outcome


CHATS = frozenset({"needs-agent"})
BROKEN = [
    ("generator/answers-its-attempt", WrongId, SingleTurn),
    ("generator/answers-its-attempt", Rewarding, SingleTurn),
    ("generator/token-exact", OtherTokens, SingleTurn),
    ("generator/token-exact", OtherNoise, SingleTurn),
    ("generator/reproducible", Mixing, SingleTurn),
    ("generator/ends-are-told-apart", AlwaysCompleted, SingleTurn),
    ("generator/failures-are-raised", FailureAsData, SingleTurn),
    ("generator/failures-are-raised", OtherError, SingleTurn),
    ("generator/cancels", Detached, SingleTurn),
    ("generator/cancels", Deaf, SingleTurn),
    ("generator/keeps-the-session", NeverCloses, OfAgents),
    ("generator/agents-fail", AgentFailureAsData, OfAgents),
    ("generator/cancels-the-agent", DetachedAgent, OfAgents),
    ("generator/keeps-the-deadline", NoDeadline, OfAgents),
    ("agent/completes", OtherKey, Chatting),
    ("agent/completes", CallsNobody, Chatting),
    ("agent/completes", LeavesTask, Chatting),
    ("agent/episodes-apart", OneKeyForAll, Chatting),
    ("agent/stops-when-told", DeafAgent, Chatting),
    ("agent/cancels", Stubborn, Chatting),
    ("agent/replays-what-it-received", Trims, Talking),
    ("agent/replays-what-it-received", Narrates, Talking),
    ("agent/replays-what-it-received", Reformats, Talking),
    ("generator/leaves-the-loop-free", Sleeps, SingleTurn),
    ("agent/leaves-the-loop-free", SleepyAgent, Chatting),
    ("agent/errors-are-no-score", ScoresErrors, Chatting),
]


def tried(check_id, factory):
    return try_check(check_id, factory, capabilities=CHATS if issubclass(factory, OfAgents) else frozenset())


@pytest.mark.parametrize(("check_id", "factory"), [(check_id, broken) for check_id, broken, _ in BROKEN])
def test_a_broken_one_is_caught(check_id, factory):
    finding = tried(check_id, factory)
    assert finding.result is CheckResult.FAILED, finding
    assert finding.detail


@pytest.mark.parametrize(("check_id", "good"), sorted({(c, g) for c, _, g in BROKEN}, key=lambda pair: pair[0]))
def test_a_good_one_passes(check_id, good):
    finding = tried(check_id, good)
    assert finding.result is CheckResult.PASSED, finding


def test_an_agent_that_calls_nobody_is_told_so_in_every_check():
    for check_id in ("agent/completes", "agent/episodes-apart", "agent/stops-when-told", "agent/cancels"):
        finding = tried(check_id, CallsNobody)
        assert finding.result is CheckResult.FAILED
        assert "call" in finding.detail
        assert "key" not in finding.detail
        assert "15 s" not in finding.detail
        assert "episode.base_url" in finding.mend


def test_how_many_calls_a_session_would_refuse():
    finding = tried("agent/replays-what-it-received", Trims)
    assert "2 of 3 calls (409, history diverged): `content` differs" in finding.detail
    assert tried("agent/replays-what-it-received", Chatting).result is CheckResult.INAPPLICABLE
