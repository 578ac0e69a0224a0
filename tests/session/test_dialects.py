"""Random harnesses that speak another dialect with every call of one session: one sequence, token for token.

The harness keeps what it was told as it was told, and says it again in whatever dialect it speaks next, as clients do:
parsed arguments are written anew, reasoning may be dropped, white space alone is dropped.
"""

from __future__ import annotations

import asyncio
import json
import random

import aiohttp
from serving import check_against_log, served

from miles_core import Sampling
from miles_core.testing import CharToolRenderer, ScriptedEngine, make_attempt

PARAMETERS = {"type": "object", "properties": {"a": {}}}
CHAT_TOOL = {"type": "function", "function": {"name": "add", "description": "adds", "parameters": PARAMETERS}}
RESPONSES_TOOL = {"type": "function", "name": "add", "description": "adds", "parameters": PARAMETERS}
ANTHROPIC_TOOL = {"name": "add", "description": "adds", "input_schema": PARAMETERS}

ARGUMENTS = ('{"a": 1}', '{"a":1.0,"b" : [true, null]}', "{ }", '{"b":"x", "a":{"c":-2}}')


def answer(request) -> str:
    """Thoughts, words and calls that only the request's noise decides."""
    rng = random.Random(request.noise.digest())
    thought = rng.choice(["", "", "<think>hm</think>"])
    words = rng.choice(["", " ", "well\n", "see <b>"])
    calls = "".join(f"<call>add {rng.choice(ARGUMENTS)}</call>" for _ in range(rng.choice([0, 0, 1, 2])))
    return thought + (words + calls or "ok")


class Harness:
    """`turns` are its own words or tool results, and what the assistant said: reasoning, text, calls by id."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.turns: list[tuple[str, object]] = [("system", "be kind")]

    def speak(self) -> None:
        """Answer every call, then maybe say something too."""
        last = self.turns[-1]
        calls = last[1]["calls"] if last[0] == "assistant" else []
        self.turns += [("tool", (id, f"result {n}")) for n, (id, _) in enumerate(calls)]
        if not calls or self.rng.random() < 0.3:
            self.turns.append(("user", f"word {self.rng.randrange(100)}"))

    def chat(self) -> tuple[str, dict]:
        messages = []
        for role, said in self.turns:
            if role == "tool":
                messages.append({"role": "tool", "tool_call_id": said[0], "content": said[1]})
            elif role == "assistant":
                calls = [
                    {"id": id, "type": "function", "function": {"name": "add", "arguments": text}}
                    for id, text in said["calls"]
                ]
                message = {"role": "assistant", "content": said["text"] or None, "refusal": None}
                if self.rng.random() < 0.5:
                    message["reasoning_content"] = said["reasoning"]
                messages.append({**message, "tool_calls": calls or None})
            else:
                messages.append({"role": role, "content": said})
        return "/chat/completions", {"messages": messages, "tools": [CHAT_TOOL]}

    def anthropic(self) -> tuple[str, dict]:
        messages: list[dict] = []
        for role, said in self.turns[1:]:
            if role == "assistant":
                blocks = [{"type": "text", "text": said["text"]}] if said["text"].strip() else []
                if said["reasoning"] and self.rng.random() < 0.5:
                    blocks.insert(0, {"type": "thinking", "thinking": said["reasoning"], "signature": "s"})
                blocks += [
                    {"type": "tool_use", "id": id, "name": "add", "input": json.loads(text)}
                    for id, text in said["calls"]
                ]
                messages.append({"role": "assistant", "content": blocks})
                continue
            is_tool = role == "tool"
            block = {"type": "tool_result", "tool_use_id": said[0], "content": said[1]} if is_tool else said
            blocks = [block if is_tool else {"type": "text", "text": said}]
            if messages and messages[-1]["role"] == "user":
                messages[-1]["content"] += blocks
            else:
                messages.append({"role": "user", "content": blocks})
        return "/messages", {"system": "be kind", "messages": messages, "tools": [ANTHROPIC_TOOL], "max_tokens": 400}

    def responses(self) -> tuple[str, dict]:
        items: list[dict] = []
        for role, said in self.turns[1:]:
            if role == "tool":
                items.append({"type": "function_call_output", "call_id": said[0], "output": said[1]})
            elif role == "assistant":
                if said["reasoning"]:
                    thought = [{"type": "reasoning_text", "text": said["reasoning"]}]
                    items.append({"type": "reasoning", "summary": [], "content": thought})
                if said["text"] or not said["calls"]:
                    items.append({"role": "assistant", "content": [{"type": "output_text", "text": said["text"]}]})
                items += [
                    {"type": "function_call", "call_id": id, "name": "add", "arguments": text}
                    for id, text in said["calls"]
                ]
            else:
                items.append({"role": role, "content": said})
        return "/responses", {"instructions": "be kind", "input": items, "tools": [RESPONSES_TOOL]}

    def hear(self, node) -> None:
        """What any client could know of the reply."""
        calls = [(c["id"], c["function"]["arguments"]) for c in node.reply.get("tool_calls", ())]
        said = {"text": node.reply["content"], "reasoning": node.reply.get("reasoning_content", ""), "calls": calls}
        self.turns.append(("assistant", said))


def told(path: str, body: dict) -> tuple[str, int]:
    """The text and the number of calls that an answer shows."""
    if path == "/messages":
        texts = [block["text"] for block in body["content"] if block["type"] == "text"]
        return "".join(texts), sum(block["type"] == "tool_use" for block in body["content"])
    if path == "/responses":
        parts = [part["text"] for item in body["output"] if item["type"] == "message" for part in item["content"]]
        return "".join(parts), sum(item["type"] == "function_call" for item in body["output"])
    message = body["choices"][0]["message"]
    return message["content"] or "", len(message.get("tool_calls", ()))


async def play(server, http, engine, number: int) -> int:
    rng = random.Random(number)
    sampling = Sampling(max_new_tokens=400, stop_tokens=(0,))
    address = await server.open(make_attempt(sampling=sampling, id=f"g{number}", index=number))
    session, harness, turns = server.store.find(address.api_key), Harness(rng), 0
    kept: list[str] = []
    while turns < 25:
        harness.speak()
        for _ in range(1 + (rng.random() < 0.2)):  # now and then the same again
            path, body = rng.choice([harness.chat, harness.anthropic, harness.responses])()
            headers = {"Authorization": f"Bearer {address.api_key}"}
            async with http.post(address.base_url + path, json=body, headers=headers) as response:
                answer = await response.json()
                assert response.status == 200, (path, answer, body)
        node = session.conversation.tree.newest
        text, calls = told(path, answer)
        assert text.strip() == node.reply["content"].strip() and calls == len(node.reply.get("tool_calls", ()))
        harness.hear(node)
        kept.append(node.sampled.request)
        turns += 1
    (sequence,) = (await server.collect(address.api_key)).sequences
    by_id = {exchange.request.id: exchange for exchange in engine.log}
    check_against_log(sequence, [by_id[request] for request in kept])
    return turns


async def test_dialects_may_change_with_every_call():
    engine = ScriptedEngine(answer, context=100_000)
    async with served(engine, CharToolRenderer(), context=100_000) as server, aiohttp.ClientSession() as http:
        turns = await asyncio.gather(*(play(server, http, engine, number) for number in range(12)))
        assert sum(turns) == 300 and not server.store.faults
