"""A matcher: whether a message that a harness replayed is the one that a session stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from miles_core.contracts.component import load_attribute
from miles_core.contracts.rollout import Matcher
from miles_core.testing.kit.check import Grade, check, expect
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.task import Message


@check("matcher", Grade.GOLD, "a message matches itself, and what differs in role or text does not match")
def reflexive(subject: ComponentSubject) -> None:
    matcher: Matcher = subject.build()
    for message in _messages():
        found = matcher.matches(message, dict(message))
        expect(found is True, f"{message} and its copy: {found!r}", "a message matches its equal: return True")
    for stored, replayed in _strangers():
        found = matcher.matches(stored, replayed)
        expect(
            found is False, f"{stored} is taken for {replayed}: {found!r}", "role and text always count: return False"
        )


@check("matcher", Grade.GOLD, "it takes messages of any shape, changes none and answers the same again")
def robust(subject: ComponentSubject) -> None:
    matcher: Matcher = subject.build()
    odd: list[Message] = [
        {"role": "assistant"},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": [{"type": "text", "text": "four"}]},
        {"role": "assistant", "content": "", "tool_calls": [_tool_call("{no")]},
    ]
    messages = [*_messages(), *odd]
    before = repr(messages)
    first = [matcher.matches(a, b) for a in messages for b in messages]
    expect(all(isinstance(each, bool) for each in first), "an answer is no bool", "return True or False")
    again = [matcher.matches(a, b) for a in messages for b in messages]
    expect(first == again, "the same two messages are judged differently", "keep no state")
    expect(repr(messages) == before, "a message was changed", "compare, and change nothing")


@check("matcher", Grade.GOLD, "its documentation says what it can merge")
def documents_merges(subject: ComponentSubject) -> None:
    factory = load_attribute(subject.registered.component.factory)
    texts = [factory.__doc__, getattr(factory, "matches", factory).__doc__, subject.registered.component.summary]
    text = " ".join(filter(None, texts))
    expect(
        len(text.split()) >= 12,
        f"all that is said of it is {text!r}",
        "say in its docstring which different messages it takes for the same: their tokens are merged in silence",
    )


def _tool_call(arguments: str = '{"a": 1, "b": 2}') -> dict[str, Any]:
    return {"id": "call-1", "type": "function", "function": {"name": "add", "arguments": arguments}}


def _messages() -> Iterator[Message]:
    yield {"role": "user", "content": "what is 2+2?"}
    yield {"role": "assistant", "content": "four"}
    yield {"role": "assistant", "content": "", "tool_calls": [_tool_call()]}
    yield {"role": "tool", "content": "3", "tool_call_id": "call-1"}


def _strangers() -> Iterator[tuple[Message, Message]]:
    yield {"role": "assistant", "content": "four"}, {"role": "assistant", "content": "five"}
    yield {"role": "assistant", "content": "four"}, {"role": "user", "content": "four"}
