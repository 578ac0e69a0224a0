"""Random programs of harnesses whose model calls tools and reasons, on the plain ones of `programs`.

The harness answers calls in any order, some of them or none; it drops reasoning; it writes arguments its own way.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from programs import Branches, Player

from miles_core import Renderer
from miles_core.session.attach import Branching, Linear
from miles_core.session.conversation import Conversation
from miles_core.session.matching import ToolArgumentsMatcher
from miles_core.session.messages import read_messages
from miles_core.session.tools import read_tools
from miles_core.testing import CharToolRenderer

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}, "strict": True}}]
OTHERS = [*TOOLS, {"type": "function", "function": {"name": "sub"}}]
CHANGED = [{"type": "function", "function": {**TOOLS[0]["function"], "description": "Adds."}}]
PIECES = (
    '<call>add {"a": 1, "b": [true]}</call>',
    '<call>add {"b":2.0}</call>',
    "<call>sub {}</call>",
    "<call>add {broken}</call>",
    "</call>",
    "so ",
    "x",
)


def spoken(player) -> list[int]:
    """What the model samples: maybe a thought, then text and calls, some of them broken."""
    rng = player.rng
    thought = rng.choice(["", "", "<think>hm</think>", "<think></think>"])
    text = thought + "".join(rng.choices(PIECES, k=rng.randint(0, 3)))
    return [*player.renderer.encode(text or "-").tolist(), player.vocabulary.start]  # the last may become the stop


def respelled(player, reply) -> dict:
    """A reply as some harness sends it back."""
    reply = json.loads(json.dumps(reply))
    if player.rng.random() < 0.5:
        reply.pop("reasoning_content", None)
    for call in reply.get("tool_calls", ()):
        if player.rng.random() < 0.5:
            arguments = json.loads(call["function"]["arguments"])
            call["function"]["arguments"] = json.dumps(dict(reversed(arguments.items())), indent=1)
        if player.rng.random() < 0.3:
            call["index"] = 0
    return reply


def results(player, reply) -> list[dict]:
    """Answers to the calls of a reply, in any order, not always to all of them."""
    calls = list(reply.get("tool_calls") or ())
    player.rng.shuffle(calls)
    if len(calls) > 1 and player.rng.random() < 0.2:
        calls.pop()
    return [{"role": "tool", "tool_call_id": call["id"], "content": player.text()} for call in calls]


@dataclass
class ToolPlayer(Player):
    renderer: Renderer = field(default_factory=CharToolRenderer)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.conversation = Conversation(self.renderer, Linear(), ToolArgumentsMatcher(), 10_000)
        self.tools = read_tools(TOOLS)
        self.ids: set[str] = set()

    said = spoken

    def prepare(self, messages):
        return self.conversation.prepare(read_messages(json.loads(json.dumps(messages))), tools=self.tools)

    def rendered(self, messages) -> tuple[int, ...]:
        whole = self.renderer.render(read_messages(json.loads(json.dumps(messages))), tools=self.tools)
        return tuple(whole.tolist())

    def extend(self) -> None:
        answers = results(self, self.history[-1]) if self.history and self.rng.random() < 0.9 else []
        if not answers or self.cut:
            super().extend()
        else:
            self.call([*self.history, *answers, *([self.message("user")] if self.rng.random() < 0.2 else [])])

    def replayed(self, reply) -> dict:
        ids = [call["id"] for call in reply.get("tool_calls", ())]
        assert len(set(ids)) == len(ids) and self.ids.isdisjoint(ids)
        self.ids |= set(ids)
        calls = reply.get("tool_calls")
        reply = super().replayed(respelled(self, reply))
        return {**reply, "tool_calls": respelled(self, {"tool_calls": calls})["tool_calls"]} if calls else reply

    def other_tools(self) -> None:
        if not self.history:
            return
        mine = self.tools
        for others in ((), OTHERS, CHANGED):
            self.tools = read_tools(list(others))
            self.expect("history_diverged", [*self.history, self.message("user")])
            self.expect("history_diverged", self.asked)
        self.tools = mine

    def other_arguments(self) -> None:
        """Replay the last call with another value."""
        if not (self.history and self.history[-1].get("tool_calls")) or self.cut:
            return
        edited = json.loads(json.dumps(self.history))
        edited[-1]["tool_calls"][0]["function"]["arguments"] = '{"a": 99}'
        self.expect("history_diverged", [*edited, self.message("user")], len(edited) - 1)


@dataclass
class ToolBranches(Branches):
    """Two lists of tools: the same messages with another list are another conversation."""

    renderer: Renderer = field(default_factory=CharToolRenderer)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.conversation = Conversation(self.renderer, Branching(), ToolArgumentsMatcher(), 10_000)
        self.of: list[tuple] = []  # of each known conversation: its tools, and what its last call added
        self.tools: tuple = ()
        self.added = ""

    said = spoken

    def prepare(self, request):
        return self.conversation.prepare(request, tools=self.tools)

    def call(self, messages) -> None:
        self.tools = read_tools(self.rng.choice([TOOLS, OTHERS]))
        known = len(self.known)
        last = messages[-2] if len(messages) > 1 else {}
        if messages[-1]["role"] == "user" and last.get("tool_calls"):
            messages = [*messages[:-1], *results(self, last), messages[-1]]
        super().call([respelled(self, each) if each["role"] == "assistant" else each for each in messages])
        self.of += [(self.tools, self.added)] * (len(self.known) - known)

    def begun(self, messages):
        """As of plain branches, among the conversations with the same tools; replies are compared as they mean."""
        everything = self.known
        same = [each for each, (tools, _) in zip(everything, self.of, strict=True) if tools == self.tools]
        self.known = [(meant(each[0], messages), *each[1:]) for each in same]
        lengths = [
            len(each[0]) for each in self.known if each[0] == messages[: len(each[0])] and len(each[0]) < len(messages)
        ]
        self.added = json.dumps(read_messages(messages)[max(lengths, default=0) :], sort_keys=True)
        try:
            return super().begun(messages)
        finally:
            self.known = everything

    def wanted(self) -> set[str]:
        """As of plain branches; what was asked is what a call added, in normal form, to what it went on from."""
        followed = {logged.id for _, answers, _ in self.known for logged in answers[:-1]}
        ids = [[logged.id for logged in answers] for _, answers, _ in self.known]
        asked = [(*added, path[:-1]) for added, path in zip(self.of, ids, strict=True)]
        dropped = {
            path[-1]
            for place, path in enumerate(ids)
            if path[-1] not in followed and asked[place] in asked[place + 1 :]
        }
        return {id for path in ids if path[-1] not in dropped for id in path}


def plain(message) -> dict:
    """Without what may be spelled in several ways."""
    calls = [
        {"id": call["id"], "name": call["function"]["name"], "arguments": json.loads(call["function"]["arguments"])}
        for call in message.get("tool_calls", ())
    ]
    return {"role": message["role"], "content": message["content"], "id": message.get("tool_call_id"), "calls": calls}


def meant(stored, replayed) -> list[dict]:
    """The stored messages, each as it is replayed where it means the same."""
    length = min(len(stored), len(replayed))
    same = [theirs if plain(ours) == plain(theirs) else ours for ours, theirs in zip(stored, replayed, strict=False)]
    return [*same, *stored[length:]]
