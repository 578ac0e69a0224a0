"""The body of a call: a JSON object that everything behind it can read, whatever a client sends."""

from __future__ import annotations

import json
import math
from typing import Any

from starlette.requests import Request

from miles_core.session.faults import SessionFault, bad_request

DRAINED = 16
"""A body that is too large is read to its end, and forgotten, up to this many times the limit: the client can then read
the answer. Beyond, the connection is closed."""

DEPTH = 100
"""Objects and lists inside each other. Templates and parsers are recursive, and Python's recursion ends soon after."""


async def read_body(request: Request, limit: int, empty: bool = False) -> dict[str, Any]:
    """The JSON object of the body; with `empty`, none is one too. Raises SessionFault: 413 when it is larger than
    `limit` bytes; 400 when it is no JSON object, or holds what not everybody can read: a number that is not finite,
    text that is no Unicode (half a surrogate pair), more than DEPTH levels."""
    raw = await _bytes(request, limit)
    if empty and not raw:
        return {}
    try:
        body = json.loads(raw, parse_constant=_no_json, parse_float=_finite)
        check_value(body)
    except RecursionError:
        raise bad_request(f"the body has more than {DEPTH} levels", code="malformed_json") from None
    except ValueError as error:
        raise bad_request(f"the body is no JSON: {error}", code="malformed_json") from None
    if not isinstance(body, dict):
        raise bad_request(f"the body is {type(body).__name__}, expected an object", code="malformed_json")
    return body


def check_value(value: Any) -> None:
    """Raises ValueError for JSON data that is too deep or has text that is no Unicode."""
    level = [value]
    for _ in range(DEPTH):
        below: list[Any] = []
        for each in level:
            if isinstance(each, str):
                _check_text(each)
            elif isinstance(each, dict):
                below += each.values()
                for key in each:
                    _check_text(key)
            elif isinstance(each, list):
                below += each
        if not below:
            return
        level = below
    raise ValueError(f"it has more than {DEPTH} levels")


def _check_text(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"text with half a surrogate pair, {text[error.start]!a}, is no Unicode") from None


def _no_json(word: str) -> Any:
    """Python reads and writes NaN and Infinity, and no other client would read them."""
    raise ValueError(f"{word} is no value of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.40} is beyond the largest number")
    return value


async def _bytes(request: Request, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size <= limit:
            parts.append(part)
        elif size > DRAINED * limit:
            break
        else:
            parts.clear()
    if size > limit:
        raise SessionFault(413, "body_too_large", f"the body is larger than {limit} bytes")
    return b"".join(parts)
