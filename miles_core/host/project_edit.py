"""Changing miles.toml: one name in or out of a list; comments, other tables and the rest of the layout stay.

TOML writers lose comments, so the text itself is edited. What comes out is parsed again and compared with what was
meant: a file that is written in a way that this does not understand is refused instead of damaged.
"""

from __future__ import annotations

import json
import re
from typing import Any

from miles_core.errors import RequestError
from miles_core.host.project import FILE

_TABLE = re.compile(r"^[ \t]*\[[ \t]*plugins[ \t]*\][ \t]*(?:#[^\n]*)?(?:\n|$)", re.MULTILINE)
_NEXT_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
_INDENT = re.compile(r"[ \t]*")
_REST = re.compile(r"[ \t]*(?:#[^\n]*)?\n")
"""What may follow an item on its line, to the line's end."""
_TOKEN = re.compile(r"""#[^\n]*|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[\[\],]""")


def changed(text: str, key: str, *, add: str = "", remove: tuple[str, ...] = ()) -> str:
    """The text with `plugins.<key>` changed: `remove` taken out, `add` put at its end. Raises RequestError when the
    file is written in a form that cannot be edited safely."""
    import tomllib

    table = tomllib.loads(text).get("plugins", {})
    before = list(table.get(key, []))
    after = [each for each in before if each not in remove]
    after += [add] if add and add not in after else []
    if after == before:
        return text
    edited = text
    for name in remove:
        edited = _without(edited, key, name)
    if add and add not in before:
        edited = _with(edited, key, add)
    expected = {**tomllib.loads(text), "plugins": {**table, key: after}}
    if _parsed(edited) != expected:
        raise RequestError(
            f"the list plugins.{key} is written in a form that is not edited by command",
            where=FILE,
            mend=f"write it yourself: [plugins] {key} = {json.dumps(after, ensure_ascii=False)}",
        )
    return edited


def _parsed(text: str) -> Any:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _with(text: str, key: str, name: str) -> str:
    item = json.dumps(name, ensure_ascii=False)
    body = _body(text)
    if body is None:
        gap = "\n" if text.strip() else ""
        return f"{text.rstrip()}\n{gap}[plugins]\n{key} = [{item}]\n".lstrip("\n")
    span = _list_span(text, key, body)
    if span is None:
        head = text[: body[0]]
        return f"{head}{'' if head.endswith(chr(10)) else chr(10)}{key} = [{item}]\n{text[body[0] :]}"
    start, end = span
    tokens = _tokens(text, start, end)
    strings = [token for token in tokens if _is_string(token)]
    if not strings:
        return f"{text[: start + 1]}{item}{text[start + 1 :]}"
    last = strings[-1]
    has_comma = tokens[tokens.index(last) + 1].group() == ","
    behind = tokens[tokens.index(last) + 1].end() if has_comma else last.end()
    text = text if has_comma else f"{text[:behind]},{text[behind:]}"
    behind += not has_comma
    line = text.rfind("\n", start, last.start()) + 1
    if not line:
        return f"{text[:behind]} {item}{text[behind:]}"
    line_end = text.find("\n", behind, end)  # a comment behind the last item stays with it
    place = line_end if line_end >= 0 else behind
    indent = _INDENT.match(text, line).group()  # type: ignore[union-attr]  # it matches nothing, too
    return f"{text[:place]}\n{indent}{item}{',' if has_comma else ''}{text[place:]}"


def _without(text: str, key: str, name: str) -> str:
    import tomllib

    while True:
        body = _body(text)
        span = _list_span(text, key, body) if body is not None else None
        if span is None:
            return text
        tokens = _tokens(text, *span)
        values = {i: tomllib.loads(f"a={token.group()}")["a"] for i, token in enumerate(tokens) if _is_string(token)}
        found = [i for i, value in values.items() if value == name]
        if not found:
            return text
        start, end = _cut(text, tokens, found[0])
        text = text[:start] + text[end:]


def _cut(text: str, tokens: list[re.Match[str]], position: int) -> tuple[int, int]:
    """The part of the text that one item takes: with the comma behind it, else with one before it on its line; with its
    whole line, when that holds nothing else."""
    start, end = tokens[position].span()
    following = tokens[position + 1]
    if following.group() == ",":
        end = following.end()
    line = text.rfind("\n", 0, start) + 1
    rest = _REST.match(text, end)
    if not text[line:start].strip() and rest is not None:
        return line, rest.end()
    before = tokens[position - 1] if position else None
    if following.group() != "," and before is not None and before.start() >= line:
        return before.start(), end
    return start, _INDENT.match(text, end).end()  # type: ignore[union-attr]  # it matches nothing, too


def _body(text: str) -> tuple[int, int] | None:
    """Where the lines of the table [plugins] begin and end; None when the file has none."""
    header = _TABLE.search(text)
    if header is None:
        return None
    following = _NEXT_TABLE.search(text, header.end())
    return header.end(), following.start() if following else len(text)


def _list_span(text: str, key: str, body: tuple[int, int]) -> tuple[int, int] | None:
    """Where the list of the key begins (its `[`) and ends (behind its `]`)."""
    found = re.compile(rf"""^[ \t]*["']?{key}["']?[ \t]*=[ \t]*\[""", re.MULTILINE).search(text, body[0], body[1])
    if found is None:
        return None
    start = found.end() - 1
    for token in _TOKEN.finditer(text, start + 1):
        if token.group() == "]":
            return start, token.end()
    return None


def _tokens(text: str, start: int, end: int) -> list[re.Match[str]]:
    """Strings, commas and the closing bracket of a list; no comments."""
    return [token for token in _TOKEN.finditer(text, start + 1, end) if not token.group().startswith("#")]


def _is_string(token: re.Match[str]) -> bool:
    return token.group()[0] in "\"'"
