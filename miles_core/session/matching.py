"""Whether a message that a harness replayed is the one that the session stored. Both are in normal form.

A match means: go on from the stored *tokens*, whatever the replayed text says. So the looser a matcher is, the more the
history that is trained on may differ from what the harness believes it sent:

    strict          equal in every field that a renderer reads; a reply may be replayed without its reasoning, which
                    many harnesses drop: what was sampled stays in the tokens all the same
    tool-arguments  as strict, but the arguments of tool calls are compared as JSON values. Silently merges another
                    order of keys, other white space, and another spelling of the same number or text
    role-content    role and content alone. Silently merges histories whose tool calls or reasoning differ
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from miles_core.contracts.component import BuildContext
from miles_core.contracts.options import NoOptions
from miles_core.contracts.rollout import Matcher
from miles_core.errors import PluginError
from miles_core.session.images import image_difference, told_content
from miles_core.types.task import Message

EXCERPT = 40


class StrictMatcher:
    """Equal in every field that a renderer reads. Silently merges a reply with itself without its reasoning."""

    def __init__(self, options: NoOptions | None = None, context: BuildContext | None = None) -> None:
        pass

    def matches(self, stored: Message, replayed: Message) -> bool:
        return stored == replayed or ("reasoning_content" in stored and stored == _completed(stored, replayed))


class ToolArgumentsMatcher:
    """As strict, with tool calls' arguments compared as JSON. Silently merges another order of keys, other white space
    and another spelling of the same number or text."""

    def __init__(self, options: NoOptions | None = None, context: BuildContext | None = None) -> None:
        pass

    def matches(self, stored: Message, replayed: Message) -> bool:
        return stored == replayed or _parsed_calls(stored) == _parsed_calls(_completed(stored, replayed))


class RoleContentMatcher:
    """The same role and content. Silently merges histories whose tool calls or reasoning differ."""

    def __init__(self, options: NoOptions | None = None, context: BuildContext | None = None) -> None:
        pass

    def matches(self, stored: Message, replayed: Message) -> bool:
        return bool(stored["role"] == replayed["role"] and stored.get("content") == replayed.get("content"))


MATCHERS: Mapping[str, type[Matcher]] = {
    "strict": StrictMatcher,
    "tool-arguments": ToolArgumentsMatcher,
    "role-content": RoleContentMatcher,
}
"""The core's own, by name: for those who serve sessions without a recipe."""


class CheckedMatcher:
    """A plugin's matcher, held to its contract: it answers True or False. Raises PluginError where it does not."""

    def __init__(self, inner: Matcher) -> None:
        self._inner = inner
        self._name = type(inner).__name__

    def matches(self, stored: Message, replayed: Message) -> bool:
        try:
            found = self._inner.matches(stored, replayed)
        except Exception as error:
            raise PluginError(f"matcher {self._name} failed: {type(error).__name__}: {error}") from error
        if not isinstance(found, bool):
            raise PluginError(f"matcher {self._name} answered {found!r:.40}", mend="return True or False")
        return found


def difference(stored: Message, replayed: Message) -> str:
    """In words, the first field in which two messages differ."""
    replayed = _completed(stored, replayed)
    for key in dict.fromkeys(("role", *stored, *replayed)):
        ours, theirs = stored.get(key), replayed.get(key)
        if ours != theirs:
            if found := image_difference(ours, theirs):
                return f"`{key}` differs: {found}"
            ours, theirs = told_content(ours), told_content(theirs)
            place = _first_difference(ours, theirs)
            return f"`{key}` differs: the session has {_shown(ours, place)}, the request {_shown(theirs, place)}"
    return "the matcher says that they differ"


def _completed(stored: Message, replayed: Message) -> Message:
    """The replayed message, with the stored reasoning where it has none."""
    if "reasoning_content" not in stored or "reasoning_content" in replayed:
        return replayed
    return {**replayed, "reasoning_content": stored["reasoning_content"]}


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
        return _typed({} if value is None else value)
    except (ValueError, RecursionError):
        return arguments


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
