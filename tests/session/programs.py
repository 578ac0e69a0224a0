"""Random programs of a harness against the pure core, with an independent log of what the engine returned.

The player speaks through JSON, as a harness does, keeps its own history and its own expectation, and knows nothing of
trees. The engine is a function of a seeded generator; what it returns is put down in plain tuples before the core sees
it.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace

import numpy as np

from miles_core import Finish, GenerateRequest, GenerateResult, NoiseKey, PluginError, Renderer, Sampling, VersionSpan
from miles_core.session.attach import Branching, Linear
from miles_core.session.collect import sequences
from miles_core.session.conversation import Conversation
from miles_core.session.faults import SessionFault
from miles_core.session.matching import StrictMatcher
from miles_core.session.messages import read_messages
from miles_core.testing import CharRenderer

STEPS = (*["extend"] * 8, *["retry", "cut_turn", "edit", "drop", "rewind", "fail", "abort", "broken", "reasoned"])
LETTERS = "abcdefgh \n"


@dataclass
class Logged:
    """One answer of the engine, as it left it."""

    id: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    temperature: float
    engine: str


@dataclass
class Player:
    """Plays one conversation. `turns` counts what was committed; `refused` what was rightly refused, by code."""

    rng: random.Random
    renderer: Renderer = field(default_factory=CharRenderer)
    letters: str = LETTERS
    vocabulary: range = range(ord("a"), ord("z") + 1)
    turns: int = 0
    version: int = 1
    refused: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.conversation = Conversation(self.renderer, Linear(), StrictMatcher(), 10_000)
        self.history: list[dict] = []  # what the harness believes, the last reply included
        self.asked: list[dict] = []  # the messages of the last finished call
        self.line: list[Logged] = []  # what must be trained on
        self.cut = False

    def play(self, steps) -> None:
        for step in steps:
            getattr(self, step)()
        self.check()

    # What a harness does

    def extend(self) -> None:
        new = [self.message("tool_like" if self.rng.random() < 0.2 else "user")]
        if self.rng.random() < 0.2:
            new.append(self.message("system"))
        if self.cut:
            self.expect("turn_truncated", [*self.history, *new])
            return
        self.call([*self.history, *new])

    def retry(self) -> None:
        if self.asked:
            self.call(self.asked, again=True)

    def edit(self) -> None:
        """Change something in the past, and go on."""
        if not self.history:
            return
        place = self.rng.randrange(len(self.history))
        edited = [dict(message) for message in self.history]
        content = edited[place]["content"]
        edited[place]["content"] = (
            content[0]["text"] if isinstance(content, list) and content else content or ""
        ) + "!"
        self.expect("history_diverged", [*edited, self.message("user")], place)

    def drop(self) -> None:
        """Forget some messages of the past, and go on."""
        if len(self.history) < 3:
            return
        place = self.rng.randrange(len(self.history) - 2)
        kept = self.history[:place]
        new = [*kept, {"role": "user", "content": "compacted: " + self.text()}]
        self.expect("history_diverged", new)

    def rewind(self) -> None:
        """Send again what an earlier call sent."""
        ends = [place for place, message in enumerate(self.asked[:-1], 1) if message["role"] != "assistant"]
        if ends:
            self.expect("history_diverged", self.asked[: self.rng.choice(ends)])

    def reasoned(self) -> None:
        """Add a key to the last reply that no session stored."""
        if self.history and not self.cut:
            replayed = [*self.history[:-1], {**self.history[-1], "reasoning_content": "because"}]
            self.expect("history_diverged", [*replayed, self.message("user")], len(self.history) - 1)

    def fail(self) -> None:
        """A call that never comes back: prepared, never committed."""
        if not self.cut:
            self.prepare([*self.history, self.message("user")])

    def abort(self) -> None:
        if self.cut:
            return
        pending = self.prepare([*self.history, self.message("user")])
        request, result, _ = sample(self, pending, "stop")
        try:
            self.conversation.commit(pending, request, replace(result, finish=Finish.ABORT))
        except SessionFault as fault:
            self.count(fault.code)
        else:
            raise AssertionError("an aborted turn was kept")

    def broken(self) -> None:
        """An engine that returns fewer log-probs than tokens, or a version that goes back."""
        if self.cut:
            return
        pending = self.prepare([*self.history, self.message("user")])
        request, result, _ = sample(self, pending, "stop")
        bad = [replace(result, logprobs=result.logprobs[:-1])]
        if self.line:
            old = self.line[-1].versions[-1] - 1
            bad.append(replace(result, spans=(VersionSpan(old, 0, len(result.tokens)),)))
        try:
            self.conversation.commit(pending, request, self.rng.choice(bad))
        except PluginError:
            self.count("broken")
        else:
            raise AssertionError("a broken answer was kept")

    def cut_turn(self) -> None:
        if not self.cut:
            self.call([*self.history, self.message("user")], finish="length")

    # Calls

    def call(self, messages, *, again=False, finish="stop") -> None:
        pending = self.prepare(messages)
        before = self.line[:-1] if again else self.line
        self.check_prompt(pending, before, messages)
        request, result, logged = sample(self, pending, finish)
        node = self.conversation.commit(pending, request, result)
        result.tokens[:] = 1  # the core must not share what the engine still owns
        result.logprobs[:] = 0
        self.line = [*before, logged]
        self.asked = [dict(message) for message in messages]
        self.history = [*self.asked, self.replayed(dict(node.reply))]
        self.cut = finish == "length"
        self.turns += 1

    def said(self) -> list[int]:
        return [self.rng.choice(self.vocabulary) for _ in range(self.rng.randint(1, 12))]

    def prepare(self, messages):
        return self.conversation.prepare(read_messages(json.loads(json.dumps(messages))))

    def expect(self, code, messages, place=None) -> None:
        before = len(self.conversation.tree)
        try:
            self.prepare(messages)
        except SessionFault as fault:
            assert fault.code == code, (fault.code, code)
            assert place is None or f"at message {place} " in str(fault), (place, str(fault))
            self.count(code)
        else:
            raise AssertionError(f"{code} was let through")
        assert len(self.conversation.tree) == before

    def count(self, code) -> None:
        self.refused[code] = self.refused.get(code, 0) + 1

    def message(self, role) -> dict:
        message = {"role": "user" if role == "tool_like" else role, "content": self.text()}
        if role == "tool_like":
            message["content"] = [{"type": "text", "text": message["content"]}]
        if role == "system" and self.rng.random() < 0.5:
            message["role"] = "developer"
        return message

    def replayed(self, reply) -> dict:
        """The reply as some harness sends it back: with more keys, null for nothing."""
        if self.rng.random() < 0.5:
            reply |= {"refusal": None, "tool_calls": [], "annotations": [], "token_ids": [1, 2], "audio": None}
        if not reply["content"]:
            reply["content"] = self.rng.choice(["", None, []])
        return reply

    def text(self) -> str:
        return "".join(self.rng.choice(self.letters) for _ in range(self.rng.randint(0, 8)))

    # Checks

    def check_prompt(self, pending, before, messages) -> None:
        """The prompt is what was sampled and sent before, token for token, then the new messages' tokens."""
        prompt = tuple(pending.tokens.tolist())
        if before:
            done = before[-1].prompt + before[-1].tokens
            assert prompt[: len(done)] == done
        else:
            assert prompt == self.rendered(messages)

    def rendered(self, messages) -> tuple[int, ...]:
        return tuple(self.renderer.render(read_messages(json.loads(json.dumps(messages)))).tolist())

    def check(self) -> None:
        """What would be trained on is the log, in every column."""
        made = sequences(self.conversation.policy.kept(self.conversation.tree))
        if not self.line:
            assert made == ()
            return
        (sequence,) = made
        sampled: list[bool] = []
        logprobs: list[float] = []
        versions: list[int] = []
        owners: list[tuple] = []
        for turn, logged in enumerate(self.line):
            gap = len(logged.prompt) - len(sampled)
            assert gap > 0
            sampled += [False] * gap + [True] * len(logged.tokens)
            logprobs += [0.0] * gap + list(logged.logprobs)
            versions += [0] * gap + list(logged.versions)
            owners += [None] * gap + [(logged.id, logged.engine, turn, logged.temperature)] * len(logged.tokens)
        assert sequence.tokens.tolist() == [*self.line[-1].prompt, *self.line[-1].tokens]
        assert sequence.sampled.tolist() == sampled
        assert sequence.logprobs.tolist() == logprobs
        assert sequence.versions.tolist() == versions
        said: list[tuple | None] = [None] * len(sequence)
        for span in sequence.spans:
            said[span.start : span.stop] = [(span.request, span.engine, span.turn, span.temperature)] * (
                span.stop - span.start
            )
        assert said == owners


def sample(player, pending, finish):
    """What the engine is asked, what it returns, and the same put down for later."""
    rng = player.rng
    (stop,) = player.renderer.stop_tokens
    tokens = [token if token != stop else token + 1 for token in player.said()]
    count = len(tokens)
    if finish == "stop":
        tokens[-1] = stop
    changed = rng.randint(0, count) if rng.random() < 0.1 else count  # weights may change in the middle
    versions = [player.version + (place >= changed) for place in range(count)]
    player.version = versions[-1]
    logprobs = [-rng.randint(1, 1000) / 256 for _ in range(count)]
    temperature, engine = rng.choice([1.0, 0.0, 0.7]), rng.choice(["a", "b"])
    id = f"r{player.turns}.{rng.random()}"
    sampling = Sampling(temperature, count, stop_tokens=(stop,))
    request = GenerateRequest(id, pending.tokens, sampling, NoiseKey(0, "", "", 0, 0), "s")
    prompt = tuple(pending.tokens.tolist())
    logged = Logged(id, prompt, tuple(tokens), tuple(logprobs), tuple(versions), temperature, engine)
    edges = [place for place in range(count) if not place or versions[place] != versions[place - 1]]
    spans = tuple(VersionSpan(versions[a], a, b) for a, b in zip(edges, [*edges[1:], count], strict=True))
    arrays = np.array(tokens, np.int32), np.array(logprobs, np.float32)
    return request, GenerateResult(id, engine, *arrays, spans, Finish(finish)), logged


@dataclass
class Branches:
    """Plays a harness that forks, forgets, compacts and asks again, against the branching policy. It keeps every
    conversation that it ever had, with the answers of the engine that made it; it knows nothing of nodes."""

    rng: random.Random
    renderer: Renderer = field(default_factory=CharRenderer)
    letters: str = LETTERS
    vocabulary: range = range(ord("a"), ord("z") + 1)
    turns: int = 0
    version: int = 1

    def __post_init__(self) -> None:
        self.conversation = Conversation(self.renderer, Branching(), StrictMatcher(), 10_000)
        self.known: list[tuple[list[dict], list[Logged], bool]] = []  # messages, engine's answers, cut?

    def play(self, steps: int) -> None:
        for _ in range(steps):
            getattr(self, self.rng.choice(("root", "extend", "extend", "extend", "fork", "again", "compact")))()
        self.check()

    def text(self) -> str:
        return "".join(self.rng.choice(self.letters) for _ in range(self.rng.randint(1, 8)))

    def said(self) -> list[int]:
        return [self.rng.choice(self.vocabulary) for _ in range(self.rng.randint(1, 12))]

    def prepare(self, request):
        return self.conversation.prepare(request)

    def root(self) -> None:
        self.call([{"role": "system", "content": self.text()}, {"role": "user", "content": self.text()}])

    def extend(self) -> None:
        """Go on from the newest conversation."""
        if self.known:
            self.call([*self.known[-1][0], {"role": "user", "content": self.text()}])

    def fork(self) -> None:
        """Go on from any conversation of the past."""
        if self.known:
            self.call([*self.rng.choice(self.known)[0], {"role": "user", "content": self.text()}])

    def again(self) -> None:
        if self.known:
            self.call(self.rng.choice(self.known)[0][:-1])

    def compact(self) -> None:
        """Keep the first message and put a summary for the rest."""
        if self.known:
            messages = self.rng.choice(self.known)[0]
            self.call([messages[0], {"role": "user", "content": "so far: " + self.text()}])

    def call(self, messages) -> None:
        before, cut = self.begun(messages)
        request = read_messages(json.loads(json.dumps(messages)))
        if cut:
            try:
                self.prepare(request)
            except SessionFault as fault:
                assert fault.code == "turn_truncated"
                return
            raise AssertionError("a cut turn was continued")
        pending = self.prepare(request)
        prompt = tuple(pending.tokens.tolist())
        done = before[-1].prompt + before[-1].tokens if before else ()
        assert prompt[: len(done)] == done
        finish = "length" if self.rng.random() < 0.1 else "stop"
        request, result, logged = sample(self, pending, finish)
        node = self.conversation.commit(pending, request, result)
        self.known.append(([*messages, dict(node.reply)], [*before, logged], finish == "length"))
        self.turns += 1

    def begun(self, messages) -> tuple[list[Logged], bool]:
        """The answers of the longest conversation that these messages begin with, the newest of equals; and whether it
        was cut."""
        began = [each for each in self.known if len(each[0]) < len(messages) and each[0] == messages[: len(each[0])]]
        if not began:
            return [], False
        longest = max(len(each[0]) for each in began)
        _, answers, cut = [each for each in began if len(each[0]) == longest][-1]
        return answers, cut

    def check(self) -> None:
        """Every answer that is not replaced is learned from exactly once, as it was, after what really stood before."""
        logs = {answers[-1].id: answers for _, answers, _ in self.known}
        learned: list[str] = []
        for sequence in sequences(self.conversation.policy.kept(self.conversation.tree)):
            answers = logs[sequence.spans[-1].request]
            assert sequence.tokens.tolist() == [*answers[-1].prompt, *answers[-1].tokens]
            own = {span.request for span in sequence.spans}
            for logged in answers:
                start, stop = len(logged.prompt), len(logged.prompt) + len(logged.tokens)
                if logged.id not in own:
                    assert not sequence.sampled[start:stop].any()
                    continue
                learned.append(logged.id)
                assert sequence.sampled[start:stop].all()
                assert sequence.logprobs[start:stop].tolist() == list(logged.logprobs)
                assert sequence.versions[start:stop].tolist() == list(logged.versions)
            total = sum(len(logged.tokens) for logged in answers if logged.id in own)
            assert sequence.sampled_count == total
        assert len(learned) == len(set(learned))
        assert set(learned) == self.wanted()

    def wanted(self) -> set[str]:
        """The answers of every conversation but those that were asked again and that nothing went on from."""
        followed = {logged.id for _, answers, _ in self.known for logged in answers[:-1]}
        asked = [
            (json.dumps(messages[:-1]), [a.id for a in answers[:-1]], answers[-1].id)
            for messages, answers, _ in self.known
        ]
        dropped = {
            id
            for place, (said, before, id) in enumerate(asked)
            if id not in followed and any(later[:2] == (said, before) for later in asked[place + 1 :])
        }
        kept = [[a.id for a in answers] for _, answers, _ in self.known if answers[-1].id not in dropped]
        return {id for ids in kept for id in ids}
