"""One conversation, turn by turn, as a session builds it: render once, then what was sampled and a bridge, again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from miles_core.contracts.model import Renderer
from miles_core.testing.families.conversations import Said
from miles_core.types.sequence import TokenArray
from miles_core.types.task import Message


@dataclass(frozen=True, slots=True)
class Turn:
    """prompt   the tokens before the assistant speaks
    sampled  what it says, a stop token at the end
    written  whether that is how the renderer itself writes the message there; else it is the message's bare text
    message  what it stands for"""

    prompt: TokenArray
    sampled: TokenArray
    written: bool
    message: Message


@dataclass(frozen=True, slots=True)
class Played:
    """The turns of a conversation, and the tokens that it ended with."""

    turns: tuple[Turn, ...]
    tokens: TokenArray


class Broken(Exception):
    """The invariant does not hold. Its text says where."""


def play(renderer: Renderer, said: Said) -> Played:
    """Raises Broken where tokens that stand are changed or messages vanish, ValueError for what cannot be expressed."""
    places = [place for place, message in enumerate(said.messages) if message["role"] == "assistant"]
    first = places[0] if places else len(said.messages)
    tokens = renderer.render(said.messages[:first], tools=said.tools)
    turns = []
    for place, stop in pairwise([*places, len(said.messages)]):
        sampled, written = as_sampled(renderer, said, place)
        turns.append(Turn(tokens, sampled, written, said.messages[place]))
        tokens = extended(renderer, np.concatenate([tokens, sampled]), said.messages[place + 1 : stop], said)
    return Played(tuple(turns), tokens)


def extended(renderer: Renderer, tokens: TokenArray, messages: Sequence[Message], said: Said) -> TokenArray:
    """The tokens, then the bridge to the next turn. Raises Broken when they were touched or two bridges differ."""
    kept = tokens.copy()
    bridge = renderer.bridge(tokens, messages, tools=said.tools)
    if not np.array_equal(tokens, kept):
        raise Broken("bridge changed the tokens that it was given")
    if not (isinstance(bridge, np.ndarray) and bridge.dtype == np.int32 and bridge.ndim == 1 and len(bridge)):
        raise Broken(f"bridge gave {bridge!r:.80}, expected int32 [n] with n > 0")
    if not np.array_equal(bridge, renderer.bridge(tokens, messages, tools=said.tools)):
        raise Broken("two bridges of the same turn differ")
    text = renderer.decode(bridge)
    lost = [m for m in messages if m["role"] == "user" and m["content"].strip() and m["content"].strip() not in text]
    if lost:
        raise Broken(f"the message {lost[0]['content']!r:.60} is not in the bridge {text!r:.200}")
    return np.concatenate([tokens, bridge])


def as_sampled(renderer: Renderer, said: Said, place: int) -> tuple[TokenArray, bool]:
    """The tokens that an assistant's message is sampled as, and whether the renderer writes it so where it stands."""
    stops = renderer.stop_tokens
    try:
        prompt = renderer.render(said.messages[:place], tools=said.tools)
        whole = renderer.render(said.messages[: place + 1], tools=said.tools, generation=False)
    except ValueError:  # it cannot be rendered at once, and a session that got here need not
        prompt = whole = np.zeros(0, np.int32)
    if len(whole) > len(prompt) and np.array_equal(whole[: len(prompt)], prompt):
        written = whole[len(prompt) :]
        ends = np.flatnonzero(np.isin(written, stops))
        found = written[: ends[0] + 1] if len(ends) else np.append(written, _stop_before(renderer, said, place))
        return found.astype(np.int32), True
    bare = renderer.encode(str(said.messages[place]["content"]))
    return np.append(bare, stops[0]).astype(np.int32), False


def _stop_before(renderer: Renderer, said: Said, place: int) -> int:
    """The stop token of a turn in a format whose turns are closed by what follows: the one that opens that."""
    following = said.messages[place + 1 : place + 2]
    if following and len(renderer.stop_tokens) > 1:
        text = renderer.encode("x")
        opens = renderer.bridge(np.append(text, -1).astype(np.int32), following, tools=said.tools)
        if len(opens) and int(opens[0]) in renderer.stop_tokens:
            return int(opens[0])
    return renderer.stop_tokens[0]
