"""Random harnesses that speak another dialect with every call of one session, whole or streamed, over HTTP.

The harness keeps what it was told as it was told, and says it again in whatever dialect it speaks next, as clients do:
parsed arguments are written anew, reasoning may be dropped, white space alone is dropped. What would be trained on is
compared, token by token, with the engine's own log.
"""

from __future__ import annotations

import json
import random
from typing import Any

from serving import check_against_log

from miles_core import Sampling
from miles_core.testing import make_attempt

Json = dict[str, Any]
DIALECTS = ("chat", "anthropic", "responses")


class Harness:
    """`turns` are its own words or tool results, and what the assistant said: reasoning, text, calls (id, name, text of
    the arguments). `tools` are OpenAI's definitions."""

    def __init__(self, rng: random.Random, tools: tuple[Any, ...], system: str = "be kind") -> None:
        self.rng = rng
        self.system = system
        self.functions = [tool["function"] for tool in tools]
        self.turns: list[tuple[str, Any]] = []

    def speak(self, *, word: bool = False) -> None:
        """Answer every call, then maybe say something too; with `word`, say it in any case."""
        calls = self.turns[-1][1]["calls"] if self.turns and self.turns[-1][0] == "assistant" else []
        self.turns += [("tool", (id, name, f"result {n}")) for n, (id, name, _) in enumerate(calls)]
        if not calls or word or self.rng.random() < 0.3:
            self.turns.append(("user", f"word {self.rng.randrange(100)}"))

    def body(self, dialect: str) -> tuple[str, Json]:
        """The path and the body of a call."""
        path, body = getattr(self, dialect)()
        return path, {key: value for key, value in body.items() if value not in ([], None)}

    def chat(self) -> tuple[str, Json]:
        messages: list[Json] = [{"role": "system", "content": self.system}]
        for role, said in self.turns:
            if role == "tool":
                messages.append({"role": "tool", "tool_call_id": said[0], "content": said[2]})
            elif role == "assistant":
                calls = [
                    {"id": id, "type": "function", "function": {"name": name, "arguments": text}}
                    for id, name, text in said["calls"]
                ]
                message = {"role": "assistant", "content": said["text"] or None, "refusal": None}
                if self.rng.random() < 0.5:
                    message["reasoning_content"] = said["reasoning"]
                messages.append({**message, "tool_calls": calls or None})
            else:
                messages.append({"role": role, "content": said})
        tools = [{"type": "function", "function": function} for function in self.functions]
        return "/chat/completions", {"messages": messages, "tools": tools}

    def anthropic(self) -> tuple[str, Json]:
        messages: list[Json] = []
        for role, said in self.turns:
            if role == "assistant":
                blocks = [{"type": "text", "text": said["text"]}] if said["text"].strip() else []
                if said["reasoning"] and self.rng.random() < 0.5:
                    blocks.insert(0, {"type": "thinking", "thinking": said["reasoning"], "signature": "s"})
                blocks += [
                    {"type": "tool_use", "id": id, "name": name, "input": as_object(text)}
                    for id, name, text in said["calls"]
                ]
                messages.append({"role": "assistant", "content": blocks})
                continue
            is_tool = role == "tool"
            block = {"type": "tool_result", "tool_use_id": said[0], "content": said[2]} if is_tool else said
            blocks = [block if is_tool else {"type": "text", "text": said}]
            if messages and messages[-1]["role"] == "user":
                messages[-1]["content"] += blocks
            else:
                messages.append({"role": "user", "content": blocks})
        tools = [
            {"name": each["name"], "description": each["description"], "input_schema": each["parameters"]}
            for each in self.functions
        ]
        return "/messages", {"system": self.system, "messages": messages, "tools": tools, "max_tokens": 400}

    def responses(self) -> tuple[str, Json]:
        items: list[Json] = []
        for role, said in self.turns:
            if role == "tool":
                items.append({"type": "function_call_output", "call_id": said[0], "output": said[2]})
            elif role == "assistant":
                if said["reasoning"]:
                    thought = [{"type": "reasoning_text", "text": said["reasoning"]}]
                    items.append({"type": "reasoning", "summary": [], "content": thought})
                if said["text"] or not said["calls"]:
                    items.append({"role": "assistant", "content": [{"type": "output_text", "text": said["text"]}]})
                items += [
                    {"type": "function_call", "call_id": id, "name": name, "arguments": text}
                    for id, name, text in said["calls"]
                ]
            else:
                items.append({"role": role, "content": said})
        tools = [{"type": "function", **each} for each in self.functions]
        return "/responses", {"instructions": self.system, "input": items, "tools": tools}

    def hear(self, reply: Json) -> None:
        """What any client could know of the reply."""
        calls = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in reply.get("tool_calls", ())]
        said = {"text": reply["content"], "reasoning": reply.get("reasoning_content", ""), "calls": calls}
        self.turns.append(("assistant", said))


def as_object(arguments: str) -> Json:
    """As Anthropic's clients were sent them."""
    try:
        found = json.loads(arguments)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"unparsed_arguments": arguments}


def told(path: str, body: Json) -> str:
    """The text that an answer shows."""
    if path == "/messages":
        return "".join(block["text"] for block in body["content"] if block["type"] == "text")
    if path == "/responses":
        parts = [part["text"] for item in body["output"] if item["type"] == "message" for part in item["content"]]
        return "".join(parts)
    return body["choices"][0]["message"]["content"] or ""


def told_in_events(path: str, events: str) -> str:
    """The same of a stream."""
    found = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: {")]
    if path == "/messages":
        return "".join(each["delta"].get("text", "") for each in found if each["type"] == "content_block_delta")
    if path == "/responses":
        return "".join(each["delta"] for each in found if each["type"] == "response.output_text.delta")
    return "".join(choice["delta"].get("content") or "" for each in found for choice in each["choices"])


async def play(server, http, engine, renderer, number: int, *, turns: int, tools: tuple[Any, ...]) -> tuple[int, int]:
    """One session of so many turns; how many calls were streamed, and how many the family's format refused. Raises
    AssertionError for the first difference."""
    rng = random.Random(number)
    sampling = Sampling(max_new_tokens=400, stop_tokens=renderer.stop_tokens)
    address = await server.open(make_attempt(sampling=sampling, id=f"g{number}", index=number))
    session, harness = server.store.find(address.api_key), Harness(rng, tools)
    headers = {"Authorization": f"Bearer {address.api_key}"}
    kept: list[str] = []
    streamed = refused = 0
    while len(kept) < turns:
        before = list(harness.turns)
        harness.speak(word=refused > 0)
        for _ in range(1 + (rng.random() < 0.2)):  # now and then the same again
            path, body = harness.body(rng.choice(DIALECTS))
            stream = rng.random() < 0.5
            async with http.post(address.base_url + path, json={**body, "stream": stream}, headers=headers) as response:
                answer = await response.text()
                if response.status == 400 and "not_renderable" in answer:  # e.g. a text that has no tokens here
                    break
                assert response.status == 200, (path, answer, body)
            streamed += stream
            node = session.conversation.tree.newest
            seen = told_in_events(path, answer) if stream else told(path, json.loads(answer))
            assert seen.strip() == node.reply["content"].strip(), (path, stream, seen, node.reply)
        else:
            harness.hear(node.reply)
            kept.append(node.sampled.request)
            continue
        refused += 1
        harness.turns = before
        if refused > 3:
            break
    (sequence,) = (await server.collect(address.api_key)).sequences
    by_id = {exchange.request.id: exchange for exchange in engine.log}
    newest = session.conversation.tree.newest
    check_against_log(sequence, [by_id[node.sampled.request] for node in newest.path])
    return streamed, refused
