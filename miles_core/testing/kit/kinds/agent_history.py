"""An agent's history: what it sends back of the model's is what it received, else a session refuses the call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any

from miles_core.contracts.rollout import Agent, Episode
from miles_core.session.faults import SessionFault
from miles_core.session.matching import StrictMatcher, difference
from miles_core.session.messages import read_messages
from miles_core.testing.fakes.chat import ScriptedChat
from miles_core.testing.kit.check import Grade, check, expect, fail, inapplicable
from miles_core.testing.kit.samples import sample_tasks
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.sampling import Sampling
from miles_core.types.task import Message

SAID = (" Let me think:\n\n  is it *1*? ", "No.\tThen <answer> 2 </answer>\n", "\n- 3, or\n- 4 ")
"""Replies with what a careless program trims, and no answer to anything."""
LIMIT = 20.0


@check("agent", Grade.GOLD, "it sends the model's messages back as it received them")
async def replays_what_it_received(subject: ComponentSubject) -> None:
    """What becomes of the episode does not count here: the model talks nonsense."""
    agent: Agent = subject.build()
    said = _Said()
    async with ScriptedChat(said) as chat:
        task = sample_tasks(subject, 1)[0]
        episode = Episode(task, chat.base_url, "key", Sampling(max_new_tokens=64), None, asyncio.Event())
        running = asyncio.ensure_future(agent.run(episode))
        await asyncio.wait({running}, timeout=LIMIT)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        calls = [body.get("messages") for body in chat.calls]
    if len(calls) < 2:
        inapplicable("it asks the model once, so there is nothing to send back")
    refused = list(_refused(calls, said.replies))
    expect(
        not refused,
        f"a session would refuse {len(refused)} of {len(calls)} calls (409, history diverged): "
        f"{refused[0] if refused else ''}",
        "add choices[0].message to the conversation as it is: what is trained on is what was sampled",
    )


class _Said:
    """The model: calls the first tool that it is given once, then says SAID."""

    def __init__(self) -> None:
        self.replies: list[Message] = []

    def __call__(self, body: Mapping[str, Any]) -> Message:
        tools = body.get("tools")
        reply: dict[str, Any] = {"role": "assistant", "content": SAID[len(self.replies) % len(SAID)]}
        if isinstance(tools, list) and tools and not self.replies:
            reply["tool_calls"] = [_call(tools[0]["function"])]
        self.replies.append(reply)
        return reply


def _call(function: Mapping[str, Any]) -> dict[str, Any]:
    fields = function.get("parameters", {}).get("properties", {})
    values = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}, "null": None}
    arguments = {name: values.get(str(schema.get("type")), "1") for name, schema in fields.items()}
    text = json.dumps(arguments, indent=1)
    return {"id": "call-1", "type": "function", "function": {"name": function["name"], "arguments": text}}


def _refused(calls: list[Any], replies: list[Message]) -> Iterator[str]:
    """Why, for each call whose history has a message of the model that it never said."""
    stored: list[Message] = []
    first = _assistants(calls[0])  # examples that the agent itself brings
    for call, reply in zip(calls, replies, strict=False):
        for message in _assistants(call):
            if message in first or any(StrictMatcher().matches(each, message) for each in stored):
                continue
            alike = [each for each in stored if each["content"] == message["content"]]
            yield difference([*stored, *alike][-1], message) if stored else "the model said nothing yet"
            break
        stored += _assistants([reply, {"role": "user", "content": "?"}])


def _assistants(messages: Any) -> list[Message]:
    try:
        return [each for each in read_messages(messages) if each["role"] == "assistant"]
    except SessionFault as fault:
        fail(f"a session would refuse a call ({fault.status}): {fault}", "send messages as OpenAI's chat has them")
