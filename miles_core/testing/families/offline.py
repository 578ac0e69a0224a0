"""The checks that need no engine: append-only, parity with the checkpoint's own template, calls read back."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from miles_core.contracts.model import Renderer
from miles_core.testing.families.conversations import Said, conversations
from miles_core.testing.families.images import check_images
from miles_core.testing.families.report import Tally
from miles_core.testing.families.turns import Broken, Played, Turn, as_sampled, extended, play
from miles_core.types.sequence import TokenArray
from miles_core.types.task import Message

COUNT = 200


def check_offline(renderer: Renderer, count: int = COUNT) -> dict[str, Tally]:
    """name of the check -> what came of it, over `count` generated conversations."""
    tallies = {name: Tally() for name in ("append-only", "whole", "parity", "read-back", "any-tokens")}
    template = getattr(renderer, "template_tokens", None)
    pool: set[int] = set(renderer.stop_tokens)
    played = []
    for said in conversations(count):
        try:
            done = play(renderer, said)
        except ValueError as error:
            tallies["append-only"].refuse(str(error))
            _agree_to_refuse(tallies["parity"], template, said)
            continue
        except Broken as fault:
            tallies["append-only"].fail(f"{fault} ({_shown(said)})")
            continue
        tallies["append-only"].passed += len(done.turns) + 1
        played.append((said, done))
        pool.update(done.tokens.tolist())
        _whole(tallies["whole"], renderer, said, done)
        _parity(tallies["parity"], renderer, template, said)
        _read_back(tallies["read-back"], renderer, said, done)
    _any_tokens(tallies["any-tokens"], renderer, played, sorted(pool))
    return {**tallies, **check_images(renderer)}


def _whole(tally: Tally, renderer: Renderer, said: Said, done: Played) -> None:
    """A conversation that was built turn by turn is the one that is rendered at once."""
    if not all(turn.written for turn in done.turns):
        tally.skip("a turn of it cannot be sampled as the renderer writes it")
        return
    try:
        whole = renderer.render(said.messages, tools=said.tools)
    except ValueError as error:
        tally.refuse(str(error))
        return
    tally.note(np.array_equal(whole, done.tokens), lambda: _difference(renderer, done.tokens, whole, said))


def _parity(tally: Tally, renderer: Renderer, template: Any, said: Said) -> None:
    """Equal to the checkpoint's own template, wherever that only appends too."""
    if template is None:
        return
    try:
        theirs = template(said.messages, tools=said.tools)
        if theirs is None:
            return
        ours = renderer.render(said.messages, tools=said.tools)
        prompts = [template(said.messages[:place], tools=said.tools) for place in _assistants(said.messages)]
    except ValueError as error:
        tally.refuse(str(error))
        return
    if not all(np.array_equal(theirs[: len(prompt)], prompt) for prompt in prompts):
        tally.skip("the template rewrites earlier turns")
        return
    if not np.array_equal(ours, theirs):
        if _drops_reasoning(template, said, theirs):
            tally.skip("the template drops the reasoning of earlier turns")
            return
        if _closes_otherwise(renderer, ours, theirs):
            tally.skip("the template closes earlier turns with another token than the one that is sampled")
            return
    tally.note(np.array_equal(ours, theirs), lambda: _difference(renderer, ours, theirs, said))


def _drops_reasoning(template: Any, said: Said, theirs: TokenArray) -> bool:
    """Whether the template writes a turn's reasoning while it is the newest, and no more when others follow."""
    for place in _assistants(said.messages):
        message = said.messages[place]
        if "reasoning_content" not in message:
            continue
        bare = {key: value for key, value in message.items() if key != "reasoning_content"}
        before, after = said.messages[:place], said.messages[place + 1 :]
        newest = [template((*before, each), tools=said.tools, generation=False) for each in (message, bare)]
        without = template((*before, bare, *after), tools=said.tools)
        if not np.array_equal(*newest) and np.array_equal(without, theirs):
            return True
    return False


def _closes_otherwise(renderer: Renderer, ours: TokenArray, theirs: TokenArray) -> bool:
    """Whether all that differs are tokens that end a turn: what was sampled stays, whatever the template puts there."""
    return len(ours) == len(theirs) and bool(np.isin(ours[ours != theirs], renderer.stop_tokens).all())


def _agree_to_refuse(tally: Tally, template: Any, said: Said) -> None:
    """The renderer refused it: where the template does not, it is told."""
    try:
        theirs = None if template is None else template(said.messages, tools=said.tools)
    except ValueError:
        return
    if theirs is not None:
        tally.refuse("the renderer refuses what the template takes")


def _read_back(tally: Tally, renderer: Renderer, said: Said, done: Played) -> None:
    """`parse` of a turn is the message that it was written from."""
    for turn in done.turns:
        if not turn.written:
            continue
        parsed = renderer.parse(turn.sampled, tools=said.tools)
        wanted, found = _essence(turn.message), _essence(parsed.message)
        if not found["reasoning"]:
            wanted["reasoning"] = ""  # a format without reasoning writes none; `parity` tells where that is wrong
        if wanted != found and _stripped(wanted) == _stripped(found):
            tally.skip("the format keeps no white space at the ends of an argument")
            continue
        good = parsed.complete and (wanted == found or _written_again(renderer, said, turn, parsed.message))
        tally.note(good, partial(_misread, renderer, turn, wanted, found))


def _any_tokens(tally: Tally, renderer: Renderer, played: Sequence[tuple[Said, Played]], pool: Sequence[int]) -> None:
    """A policy samples anything: any tokens say something, and can be followed."""
    rng = random.Random(0)
    for said, done in played:
        stop = [rng.choice(renderer.stop_tokens)] if rng.random() < 0.7 else []
        middle = [token for token in rng.choices(pool, k=rng.randint(1, 20)) if token not in renderer.stop_tokens]
        sampled = np.array([*middle, *stop, *([] if middle or stop else [renderer.stop_tokens[0]])], np.int32)
        try:
            parsed = renderer.parse(sampled, tools=said.tools)
            good = parsed.message["role"] == "assistant" and isinstance(parsed.message["content"], str)
            good = good and parsed.complete == bool(np.isin(sampled, renderer.stop_tokens).any())
            extended(renderer, np.concatenate([done.tokens, sampled]), ({"role": "user", "content": "4"},), said)
        except Exception as error:  # whatever it raises here is a fault
            tally.fail(f"after {sampled.tolist()}: {type(error).__name__}: {error}")
        else:
            tally.note(good, partial("{} is read as {}".format, sampled.tolist(), parsed))


def _essence(message: Message) -> dict[str, Any]:
    calls = [
        (call["function"]["name"], _value(call["function"]["arguments"])) for call in message.get("tool_calls", ())
    ]
    content, reasoning = message.get("content") or "", message.get("reasoning_content") or ""
    return {"content": content.strip(), "reasoning": reasoning.strip(), "calls": calls}


def _misread(renderer: Renderer, turn: Turn, wanted: Any, found: Any) -> str:
    return f"{wanted} is read as {found} from {renderer.decode(turn.sampled)!r:.200}"


def _stripped(essence: Mapping[str, Any]) -> Any:
    calls = [
        (name, {key: each.strip() if isinstance(each, str) else each for key, each in arguments.items()})
        for name, arguments in essence["calls"]
    ]
    return {**essence, "calls": calls}


def _written_again(renderer: Renderer, said: Said, turn: Turn, message: Message) -> bool:
    """What the format does not express (a text beside a call) cannot be read back: then what was read is written as the
    same tokens."""
    place = said.messages.index(turn.message)
    other = Said((*said.messages[:place], message, *said.messages[place + 1 :]), said.tools, said.about)
    return np.array_equal(as_sampled(renderer, other, place)[0], turn.sampled)


def _value(arguments: Any) -> Any:
    return json.loads(arguments or "{}") if isinstance(arguments, str) else arguments


def _assistants(messages: Sequence[Message]) -> list[int]:
    return [place for place, message in enumerate(messages) if message["role"] == "assistant"]


def _difference(renderer: Renderer, ours: TokenArray, theirs: TokenArray, said: Said) -> str:
    length = min(len(ours), len(theirs))
    place = (
        int(np.argmin(ours[:length] == theirs[:length]))
        if not np.array_equal(ours[:length], theirs[:length])
        else length
    )
    first, second = (renderer.decode(each[max(0, place - 8) : place + 12]) for each in (ours, theirs))
    return f"at token {place}: {first!r} where {second!r} was expected ({_shown(said)})"


def _shown(said: Said) -> str:
    return f"{len(said.messages)} messages with {', '.join(said.about) or 'plain text'}"
