"""Whether a message that a harness replayed is the one that the session stored. Both are in normal form.

A match means: go on from the stored *tokens*, whatever the replayed text says. So a matcher that is looser than
`strict` trains on a history that differs from what the harness believes it sent:

    strict          equal in every field that a renderer reads. Merges nothing that a template could tell apart
    tool-arguments  as strict, but the arguments of tool calls are compared as JSON values. Silently merges another
                    order of keys, other white space, and another spelling of the same number or text
    role-content    role and content alone. Silently merges histories whose tool calls or reasoning differ
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from miles_core.contracts.rollout import Matcher
from miles_core.types.task import Message

EXCERPT = 40


class StrictMatcher:
    """Equal in every field."""

    def matches(self, stored: Message, replayed: Message) -> bool:
        return stored == replayed


class ToolArgumentsMatcher:
    """Equal, with tool calls' arguments compared as JSON."""

    def matches(self, stored: Message, replayed: Message) -> bool:
        return stored == replayed or _parsed_calls(stored) == _parsed_calls(replayed)


class RoleContentMatcher:
    """The same role and content."""

    def matches(self, stored: Message, replayed: Message) -> bool:
        return bool(stored["role"] == replayed["role"] and stored["content"] == replayed["content"])


MATCHERS: Mapping[str, type[Matcher]] = {
    "strict": StrictMatcher,
    "tool-arguments": ToolArgumentsMatcher,
    "role-content": RoleContentMatcher,
}


def difference(stored: Message, replayed: Message) -> str:
    """In words, the first field in which two messages differ."""
    for key in dict.fromkeys(("role", *stored, *replayed)):
        ours, theirs = stored.get(key), replayed.get(key)
        if ours != theirs:
            place = _first_difference(ours, theirs)
            return f"`{key}` differs: the session has {_shown(ours, place)}, the request {_shown(theirs, place)}"
    return "the matcher says that they differ"


def _parsed_calls(message: Message) -> Any:
    calls = [
        {**call, "function": {**call["function"], "arguments": _parsed(call["function"]["arguments"])}}
        for call in message.get("tool_calls", ())
    ]
    return {**message, "tool_calls": calls}


def _parsed(arguments: Any) -> Any:
    """The arguments as a value in which true and 1 differ and 1 and 1.0 do not; the text itself where JSON is
    ambiguous (a key twice, NaN) or broken."""
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments)
    try:
        value = json.loads(
            arguments or "{}",
            parse_float=Decimal,
            parse_int=Decimal,
            parse_constant=_refuse,
            object_pairs_hook=_unique,
        )
    except (ValueError, RecursionError):
        return arguments
    return _typed({} if value is None else value)


def _typed(value: Any) -> Any:
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list):
        return [_typed(each) for each in value]
    if isinstance(value, dict):
        return {key: _typed(each) for key, each in value.items()}
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _first_difference(ours: Any, theirs: Any) -> int:
    if not (isinstance(ours, str) and isinstance(theirs, str)):
        return 0
    return next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))


def _shown(value: Any, place: int) -> str:
    if value is None:
        return "nothing"
    if not isinstance(value, str):
        text = repr(value)
        return text if len(text) <= 2 * EXCERPT else f"{text[: 2 * EXCERPT]}…"
    start = max(0, place - EXCERPT // 2)
    piece = value[start : start + EXCERPT]
    where = f" from character {start}" if start else ""
    return f"{piece!r}{where}{'…' if start + EXCERPT < len(value) else ''}"
