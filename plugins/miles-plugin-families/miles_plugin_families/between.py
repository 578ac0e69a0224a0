"""What stands between the turns of a conversation, asked of the library over stand-in turns.

`S` is a short question and `A` a short answer to it; what the library writes after them is what it writes after any
turn that ended the same way, since a family's format is a function of roles and of how the last turn was closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from miles_plugin_families.tokenizer import FamilyTokenizer

Json = dict[str, Any]
_T = TypeVar("_T")

USER: Json = {"role": "user", "content": "x"}
ANSWER: Json = {"role": "assistant", "content": "x"}
_DROPS = "`history: template`: a user speaks again, and the family's template would rewrite the earlier turns"


class Between:
    """opening  the ids of a short conversation up to where the assistant's first token goes
    stops    ids that end a turn; first what a canonical turn ends with before a user speaks"""

    def __init__(self, library: Any, tokenizer: FamilyTokenizer, *, as_sampled: bool) -> None:
        self._library = library
        self._tokenizer = tokenizer
        self._as_sampled = as_sampled
        self._keeps_all = getattr(library, "effective_thinking_retention", "all") == "all"
        self.opening: list[int] = self.ids([USER], None, True)
        self._header = self.opening[len(self.ids([USER], None, False)) :]
        stops = [int(stop) for stop in library.get_stop_token_ids()]
        self._said = self._closed_answer(stops[0])
        after = self._by_bridge([USER], [*self._said, stops[0]], None)
        self._next_closes = bool(after) and after[0] in stops
        """Whether a turn has no end of its own: the role that speaks next closes it (GLM)."""
        if self._next_closes:
            stops.sort(key=lambda stop: stop != after[0])
        self.stops = tuple(stops)
        tool = {"type": "function", "function": {"name": "f", "description": "f", "parameters": {"type": "object"}}}
        self.writes_tools = self.ids([USER], [tool], True) != self.opening
        """Whether the format says which tools there are: some only write calls and answers."""
        self._end = next(stop for stop in stops if not self._next_closes or stop != after[0])

    def ids(self, messages: list[Json], tools: list[Json] | None, generation: bool) -> list[int]:
        """What the library writes of a whole conversation."""
        return list(
            _expressed(lambda: self._library.render_ids(messages, tools=tools, add_generation_prompt=generation))
        )

    def following(
        self, messages: list[Json], last: int | None, tools: list[Json] | None, *, opens: bool = True
    ) -> list[int]:
        """The ids after a turn whose last token is `last`: its close where it has none, `messages`, and with `opens`
        the opening of the next turn. Raises ValueError for what the format cannot express."""
        if not self._keeps_all and any(message["role"] == "user" for message in messages):
            raise ValueError(_DROPS)
        closed = last in self.stops
        if self._next_closes:
            found = self._after_close(messages, self._end, tools, opens)
            return found[1:] if closed and found[:1] == [last] else found
        end = last if closed and last is not None else self._end
        found = self._after_close(messages, end, tools, opens)
        return found if closed else [end, *found]

    def turn(self, message: Json, *, after_tool: bool) -> list[int]:
        """The ids of an assistant's message, its header included, up to its last sampled token.

        As the template writes it in the middle of a conversation when it has no reasoning, and as the newest message,
        where templates keep it, when it has. Where that does not go on from the opening of a turn and turns are kept as
        sampled, the same text after the opening, or else reasoning that was closed at once.
        """
        before = [USER, _calling([_answer()]), _answer()] if after_tool else [USER]
        newest, earlier = [*before, message], [*before, message, *(_answers_to(message) or [USER])]
        reasons = bool(message.get("reasoning_content"))
        forms = [newest, earlier] if reasons else [earlier, newest]
        written = [self._written(form, len(before)) for form in forms]
        opened = (ids for ids in written if ids[: len(self._header)] == self._header)
        found = next(opened, None)
        if found is not None or not self._as_sampled:
            return found or written[0]
        texts = [self._tokenizer.decode(ids) for ids in written]
        if not reasons:
            texts.append(self._closed_at_once([*before, {**message, "reasoning_content": "x"}], len(before)))
        header = self._tokenizer.decode(self._header)
        going_on = next((text for text in texts if text.startswith(header)), None)
        if going_on is None:
            return written[0]
        return [*self._header, *self._tokenizer.encode(going_on[len(header) :])]

    def _closed_at_once(self, form: list[Json], place: int) -> str:
        """The text of a message that reasoned `x`, without the x."""
        header, text = self._tokenizer.decode(self._header), self._tokenizer.decode(self._written(form, place))
        return header + text[len(header) + 1 :] if text.startswith(header + "x") else ""

    def last_turn(self, tokens: list[int]) -> list[int]:
        """The ids after the last opening of a turn."""
        width = len(self._header)
        for place in range(len(tokens) - width, -1, -1):
            if tokens[place : place + width] == self._header:
                return tokens[place + width :]
        return tokens

    def _written(self, messages: list[Json], place: int) -> list[int]:
        """The ids that the message at `place` has in a conversation, its close included."""
        rendered = _expressed(lambda: self._library.render(messages, add_generation_prompt=False))
        indices, sampled = rendered.message_indices, rendered.sampled_mask
        own = [n for n, index in enumerate(indices) if index == place]
        if not own:
            raise ValueError("the format writes nothing for an assistant's message")
        last = max((n for n in own if sampled[n]), default=own[-1])
        ids = list(rendered.token_ids[own[0] : last + 1])
        return ids[:-1] if self._next_closes and ids[-1] in self.stops else ids

    def _after_close(self, messages: list[Json], end: int, tools: list[Json] | None, opens: bool) -> list[int]:
        if messages and (found := self._by_bridge(messages, [*self._said, end], tools, opens)) is not None:
            return found
        return self._by_rendering(messages, opens)

    def _by_bridge(
        self, messages: list[Json], said: list[int], tools: list[Json] | None, opens: bool = True
    ) -> list[int] | None:
        """None where the library's bridge does not say."""
        rendered = _expressed(lambda: self._library.bridge_to_next_turn(self.opening, said, messages, tools=tools))
        start = len(self.opening) + len(said)
        if rendered is None or rendered.token_ids[:start] != [*self.opening, *said]:
            return None
        stop = len(rendered.token_ids)
        while not opens and stop > start and rendered.message_indices[stop - 1] == -1:
            stop -= 1
        return list(rendered.token_ids[start:stop])

    def _by_rendering(self, messages: list[Json], opens: bool) -> list[int]:
        """From a whole conversation in which a stand-in of the assistant called what answers now."""
        tools = [message for message in messages if message["role"] == "tool"]
        answer = _calling(tools) if tools else ANSWER
        conversation = [USER, answer, *messages]
        rendered = _expressed(lambda: self._library.render(conversation, add_generation_prompt=opens))
        own = [n for n, index in enumerate(rendered.message_indices) if index == 1 and rendered.sampled_mask[n]]
        if not own:
            raise ValueError("the format cannot express these messages after a turn")
        ids = list(rendered.token_ids)
        return ids[own[-1] :] if self._next_closes and ids[own[-1]] in self.stops else ids[own[-1] + 1 :]

    def _closed_answer(self, stop: int) -> list[int]:
        """A short answer after which the library goes on: one without reasoning, or one that ends it."""
        for text in ("x", "</think>x"):
            said = self._tokenizer.encode(text)
            if self._by_bridge([{"role": "tool", "content": "x", "name": "f"}], [*said, stop], None) is not None:
                return said
        return self._tokenizer.encode("x")


def _calling(answers: list[Json]) -> Json:
    """An assistant's message that calls what answers."""
    calls = [
        {
            "id": answer.get("tool_call_id") or f"functions.f:{n}",
            "type": "function",
            "function": {"name": answer.get("name") or "f", "arguments": {}},
        }
        for n, answer in enumerate(answers)
    ]
    return {"role": "assistant", "content": "x", "tool_calls": calls}


def _answers_to(message: Json) -> list[Json]:
    """One answer to each call of an assistant's message."""
    calls = enumerate(message.get("tool_calls", ()))
    return [_answer(call.get("id") or f"functions.f:{n}", call["function"]["name"]) for n, call in calls]


def _answer(id: str = "functions.f:0", name: str = "f") -> Json:
    return {"role": "tool", "content": "x", "tool_call_id": id, "name": name}


def _expressed(make: Callable[[], _T]) -> _T:
    """What the library gives. Whatever it raises for a conversation means that the format cannot express it."""
    try:
        return make()
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"the format cannot express this: {type(error).__name__}: {error}") from error
