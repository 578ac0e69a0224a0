"""Random programs of a harness against the pure core of the sessions, with an independent log of what was sampled.

The player speaks through JSON, as a harness does; it keeps every conversation that it ever had, with the answers of the
engine that made it, and knows nothing of nodes. It extends, asks again, forks, compacts, reorders the results of tools,
drops reasoning, writes arguments anew, is cut by a length, calls concurrently and gives calls up. What the engine
returns is put down in plain tuples before the core sees it, and at the end what would be trained on must be that, token
by token: `play` raises AssertionError for the first difference.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from miles_core.contracts.engine import Finish, GenerateRequest, GenerateResult, VersionSpan
from miles_core.contracts.images import rendered
from miles_core.contracts.model import Renderer
from miles_core.session.attach import Branching, Linear
from miles_core.session.collect import sequences
from miles_core.session.conversation import Conversation, Pending
from miles_core.session.faults import SessionFault
from miles_core.session.matching import ToolArgumentsMatcher
from miles_core.session.messages import read_messages
from miles_core.testing.families import pictures
from miles_core.testing.families.conversations import TEXTS, TOOLS, conversations
from miles_core.testing.families.turns import Broken, play
from miles_core.types.sampling import NoiseKey, Sampling

LINEAR_STEPS = ("extend",) * 8 + ("again", "lossy", "rewritten", "cut", "give_up", "abort")
BRANCHING_STEPS = (*LINEAR_STEPS, "root", "fork", "fork", "compact", "concurrent")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bank:
    """What an engine may sample: whole answers as the format writes them, with and without calls, and single ids."""

    answers: tuple[tuple[int, ...], ...]
    ids: tuple[int, ...]
    stops: tuple[int, ...]

    @classmethod
    def of(cls, renderer: Renderer, count: int = 60, vocabulary: int = 0) -> Bank:
        """From generated conversations. `vocabulary`: any id below it may be sampled too."""
        answers, ids = [], set(renderer.stop_tokens)
        for said in conversations(count, seed=1):
            try:
                done = play(renderer, said)
            except (ValueError, Broken):
                continue
            answers += [tuple(turn.sampled.tolist()) for turn in done.turns]
            ids.update(done.tokens.tolist())
        stops = renderer.stop_tokens
        others = sorted(ids | set(range(vocabulary)) - set(stops))
        return cls(tuple(answers), tuple(id for id in others if id not in stops), stops)

    def answer(self, rng: random.Random, *, cut: bool) -> list[int]:
        """Half of the time what the format writes, else any ids."""
        if self.answers and rng.random() < 0.5:
            found = list(rng.choice(self.answers))
        else:
            found = [*rng.choices(self.ids, k=rng.randint(0, 12)), rng.choice(self.stops)]
        found = [id for id in found[:-1] if id not in self.stops] + found[-1:]
        return (found[:-1] or [self.ids[0]]) if cut else found


@dataclass(slots=True)
class Logged:
    """One answer of the engine, as it left it."""

    id: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    images: tuple[tuple[int, int, str], ...] = ()


@dataclass(slots=True)
class Known:
    """A conversation that the harness had: its messages, the last reply included; the answers that made it; whether the
    last one was cut; and what its last call added."""

    messages: list[Json]
    answers: list[Logged]
    cut: bool
    added: str


@dataclass
class Harness:
    """Plays one conversation. `turns` counts what was committed; `refused` what was rightly refused. With `images`
    users and tools show some."""

    renderer: Renderer
    bank: Bank
    rng: random.Random
    linear: bool = False
    tools: tuple[Any, ...] = TOOLS
    turns: int = 0
    version: int = 1
    images: bool = False
    refused: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        policy = Linear() if self.linear else Branching()
        self.core = Conversation(self.renderer, policy, ToolArgumentsMatcher(), 10_000)
        self.known: list[Known] = []

    def play(self, steps: int) -> None:
        """Raises AssertionError for the first difference."""
        choices = LINEAR_STEPS if self.linear else BRANCHING_STEPS
        for _ in range(steps):
            getattr(self, self.rng.choice(choices))()
        self.check()

    # What a harness does

    def root(self) -> None:
        system = [{"role": "system", "content": self.text()}] if self.rng.random() < 0.5 else []
        self.call([*system, {"role": "user", "content": self.content()}])

    def extend(self, cut: bool = False) -> None:
        """Go on from the newest conversation."""
        if not self.known:
            self.root()
        else:
            self.call(self.gone_on(self.known[-1].messages), cut=cut)

    def cut(self) -> None:
        self.extend(cut=True)

    def fork(self) -> None:
        """Go on from any conversation of the past."""
        if self.known:
            self.call(self.gone_on(self.rng.choice(self.known).messages))

    def again(self) -> None:
        """Ask the newest question again; where branches are allowed, any question."""
        if self.known:
            self.call((self.known[-1] if self.linear else self.rng.choice(self.known)).messages[:-1])

    def compact(self) -> None:
        """Keep the first message and put a summary for the rest."""
        if self.known:
            first = self.rng.choice(self.known).messages[0]
            self.call([*([first] if first["role"] == "system" else []), {"role": "user", "content": self.text()}])

    def lossy(self) -> None:
        """Go on, having dropped the reasoning of every reply."""
        if self.known:
            messages = self.gone_on(self.known[-1].messages)
            self.call([{key: each for key, each in m.items() if key != "reasoning_content"} for m in messages])

    def rewritten(self) -> None:
        """Go on, with the arguments of every call written by another JSON library, and keys that mean nothing."""
        if self.known:
            self.call([_respelt(message) for message in self.gone_on(self.known[-1].messages)])

    def concurrent(self) -> None:
        """Two calls at once, the later one answered first."""
        if not self.known:
            return
        asked = [self.gone_on(self.rng.choice(self.known).messages) for _ in range(2)]
        waiting: list[tuple[list[Json], Pending, Known | None]] = []
        for messages in asked:
            began = self.begun(messages)
            pending = self.prepare(messages, began, [each for _, each, _ in waiting])
            if pending is not None:
                waiting.append((messages, pending, began))
        for messages, pending, began in reversed(waiting):
            self.commit(messages, pending, began, cut=False)

    def give_up(self) -> None:
        """A call that never comes back."""
        if self.known:
            messages = self.gone_on(self.known[-1].messages)
            self.prepare(messages, self.begun(messages))

    def abort(self) -> None:
        if not self.known:
            return
        messages = self.gone_on(self.known[-1].messages)
        pending = self.prepare(messages, self.begun(messages))
        if pending is None:
            return
        request, result, _ = self.sample(pending, cut=False)
        before = len(self.core.tree)
        try:
            self.core.commit(pending, request, replace(result, finish=Finish.ABORT))
        except SessionFault as fault:
            self.count(fault.code)
        assert len(self.core.tree) == before, "an aborted turn was kept"

    # Calls

    def gone_on(self, messages: Sequence[Json]) -> list[Json]:
        """The conversation, and what a harness adds: the results of calls, in any order, or a user's words."""
        calls = messages[-1].get("tool_calls") or []
        results = [{"role": "tool", "content": self.content(), "tool_call_id": call["id"]} for call in calls]
        for result, call in zip(results, calls, strict=True):
            if self.rng.random() < 0.5:
                result["name"] = call["function"]["name"]
        self.rng.shuffle(results)
        return [*messages, *(results or [{"role": "user", "content": self.content()}])]

    def call(self, messages: list[Json], *, cut: bool = False) -> None:
        began = self.begun(messages)
        pending = self.prepare(messages, began)
        if pending is not None:
            self.commit(messages, pending, began, cut=cut)

    def prepare(self, messages: list[Json], began: Known | None, waiting: Sequence[Pending] = ()) -> Pending | None:
        """The turn, when it was rightly let through; None when it was rightly refused."""
        request = read_messages(json.loads(json.dumps(messages)))
        try:
            pending = self.core.prepare(request, waiting, tools=self.tools)
        except SessionFault as fault:
            rightly = fault.code == "not_renderable" or (fault.code == "turn_truncated" and began and began.cut)
            assert rightly, f"{fault.code}: {fault}"
            self.count(fault.code)
            return None
        assert began is None or not began.cut, "a cut turn was continued"
        done = () if began is None else began.answers[-1].prompt + began.answers[-1].tokens
        prompt = tuple(pending.tokens.tolist())
        assert prompt[: len(done)] == done, "the prompt does not begin with what stood before"
        assert len(prompt) > len(done)
        if began is None:
            assert prompt == tuple(rendered(self.renderer, request, tools=self.tools).tokens.tolist())
        seen = pictures.placed(pending.all_images)
        before = () if began is None else began.answers[-1].images
        assert seen[: len(before)] == before, "an image of what stood before is another now"
        assert pictures.files_seen(pending.all_images) == pictures.files_of(request), "other images go to the engine"
        return pending

    def commit(self, messages: list[Json], pending: Pending, began: Known | None, *, cut: bool) -> None:
        request, result, logged = self.sample(pending, cut=cut)
        node = self.core.commit(pending, request, result)
        result.tokens[:] = 1  # the core must not share what the engine still owns
        result.logprobs[:] = 0
        added = json.dumps(messages[len(began.messages) if began else 0 :])
        before = [] if began is None else began.answers
        reply = json.loads(json.dumps(node.reply))
        if self.linear and before != (self.known[-1].answers if self.known else []):
            self.known.pop()  # the last turn was asked again
        self.known.append(Known([*messages, reply], [*before, logged], cut, added))
        self.turns += 1

    def sample(self, pending: Pending, *, cut: bool) -> tuple[GenerateRequest, GenerateResult, Logged]:
        """What the engine is asked, what it returns, and the same put down for later."""
        rng = self.rng
        tokens = self.bank.answer(rng, cut=cut)
        count = len(tokens)
        changed = rng.randint(0, count) if rng.random() < 0.1 else count  # weights may change in the middle
        versions = [self.version + (place >= changed) for place in range(count)]
        self.version = versions[-1]
        logprobs = [-rng.randint(1, 1000) / 256 for _ in range(count)]
        id = f"{self.turns}.{rng.random()}"
        sampling = Sampling(1.0, count, stop_tokens=self.bank.stops)
        request = GenerateRequest(id, pending.tokens, sampling, NoiseKey(0, "", "", 0, 0), "s")
        logged = Logged(id, tuple(pending.tokens.tolist()), tuple(tokens), tuple(logprobs), tuple(versions))
        logged.images = pictures.placed(pending.all_images)
        edges = [place for place in range(count) if not place or versions[place] != versions[place - 1]]
        spans = tuple(VersionSpan(versions[a], a, b) for a, b in zip(edges, [*edges[1:], count], strict=True))
        arrays = np.array(tokens, np.int32), np.array(logprobs, np.float32)
        return request, GenerateResult(id, "scripted", *arrays, spans, Finish.LENGTH if cut else Finish.STOP), logged

    def begun(self, messages: Sequence[Json]) -> Known | None:
        """The longest conversation that these messages begin with, the newest of equals."""
        known = self.known if not self.linear else self._line(messages)
        began = [
            each for each in known if len(each.messages) < len(messages) and all(map(_same, each.messages, messages))
        ]
        longest = max((len(each.messages) for each in began), default=0)
        return next((each for each in reversed(began) if len(each.messages) == longest), None)

    def _line(self, messages: Sequence[Json]) -> list[Known]:
        """Of a linear session: the newest turn, or what stood before it when it is asked again."""
        return self.known if len(messages) > len(self.known[-1].messages if self.known else ()) else self.known[:-1]

    def text(self) -> str:
        return self.rng.choice(TEXTS)

    def content(self) -> Any:
        """What a user or a tool says, with images where there are some."""
        return pictures.content(self.rng, self.text()) if self.images else self.text()

    def count(self, code: str) -> None:
        self.refused[code] = self.refused.get(code, 0) + 1

    # Checks

    def check(self) -> None:
        """Every answer that is not replaced is learned from exactly once, as it was, after what really stood before."""
        logs = {each.answers[-1].id: each.answers for each in self.known}
        learned: list[str] = []
        for sequence in sequences(self.core.policy.kept(self.core.tree)):
            answers = logs[sequence.spans[-1].request]
            assert sequence.logprobs is not None
            assert sequence.tokens.tolist() == [*answers[-1].prompt, *answers[-1].tokens], "other tokens are trained on"
            assert pictures.placed(sequence.images) == answers[-1].images, "other images are trained on"
            own = {span.request for span in sequence.spans}
            for logged in answers:
                start, stop = len(logged.prompt), len(logged.prompt) + len(logged.tokens)
                assert sequence.tokens[start:stop].tolist() == list(logged.tokens)
                if logged.id not in own:
                    assert not sequence.sampled[start:stop].any(), "a token is trained on twice"
                    continue
                learned.append(logged.id)
                assert sequence.sampled[start:stop].all()
                assert sequence.logprobs[start:stop].tolist() == list(logged.logprobs)
                assert sequence.versions[start:stop].tolist() == list(logged.versions)
            assert sequence.sampled_count == sum(len(logged.tokens) for logged in answers if logged.id in own)
        assert len(learned) == len(set(learned)), "an answer is learned from twice"
        assert set(learned) == self.wanted(), "an answer is lost, or one that was replaced is learned from"

    def wanted(self) -> set[str]:
        """The answers of every conversation but those that were asked again and that nothing went on from."""
        if self.linear:
            return {logged.id for logged in self.known[-1].answers} if self.known else set()
        followed = {logged.id for each in self.known for logged in each.answers[:-1]}
        asked = [([a.id for a in each.answers[:-1]], each.added, each.answers[-1].id) for each in self.known]
        dropped = {
            id
            for place, (before, added, id) in enumerate(asked)
            if id not in followed and any(later[:2] == (before, added) for later in asked[place + 1 :])
        }
        return {a.id for each in self.known if each.answers[-1].id not in dropped for a in each.answers}


def _same(stored: Json, replayed: Json) -> bool:
    """As a harness means it: reasoning may be missing, arguments may be spelt otherwise, other keys mean nothing."""
    ours, theirs = _meaning(stored), _meaning(replayed)
    if "reasoning_content" not in theirs:
        ours.pop("reasoning_content", None)
    return ours == theirs


def _meaning(message: Json) -> Json:
    kept = {key: message[key] for key in ("role", "name", "tool_call_id") if message.get(key)}
    kept |= {"content": pictures.meaning(message["content"])} if message.get("content") else {}
    if message.get("reasoning_content"):
        kept["reasoning_content"] = message["reasoning_content"]
    for call in message.get("tool_calls") or ():
        spelt = call["function"]["arguments"]
        kept.setdefault("calls", []).append((call.get("id"), call["function"]["name"], _parsed(spelt)))
    return kept


def _parsed(spelt: str) -> Any:
    try:
        return json.dumps(json.loads(spelt), sort_keys=True)
    except ValueError:
        return spelt


def _respelt(message: Json) -> Json:
    made = {**message, "refusal": None, "annotations": []} if message["role"] == "assistant" else dict(message)
    made["content"] = pictures.respelt(message.get("content"))
    if calls := message.get("tool_calls"):
        made["tool_calls"] = [
            {
                **call,
                "index": place,
                "function": {**call["function"], "arguments": _spelt(call["function"]["arguments"])},
            }
            for place, call in enumerate(calls)
        ]
    return made


def _spelt(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), indent=1, sort_keys=True)
    except ValueError:
        return arguments
