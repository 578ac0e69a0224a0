"""Reading the fields of a request's body. Each raises SessionFault (400) that names the field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from miles_core.session.faults import SessionFault, bad_request

Body = Mapping[str, Any]
COLDEST, HOTTEST = 0.001, 100
"""Beyond these a temperature overflows in an engine's or a trainer's 32 bits, where log-probs are divided by it."""


def integer(body: Body, key: str, least: int | None = None) -> int | None:
    value = body.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        raise bad_request(f"`{key}` is {value!r:.40}, expected an integer{'' if least is None else f' from {least}'}")
    return value


def temperature(body: Body) -> float | None:
    value = body.get("temperature")
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not (value == 0 or COLDEST <= value <= HOTTEST):
        raise bad_request(
            f"`temperature` is {value!r:.40}, expected 0 (greedy) or a number from {COLDEST} to {HOTTEST}"
        )
    return float(value)


def flag(body: Body, key: str) -> bool:
    value = body.get(key)
    if value is not None and not isinstance(value, bool):
        raise bad_request(f"`{key}` is {value!r:.40}, expected true or false")
    return bool(value)


def model_name(body: Body, served: str) -> str:
    """The model that the client names is echoed, whatever it is: a session has one."""
    named = body.get("model")
    return named if isinstance(named, str) and named else served


def asked_in_vain(body: Body, neutral: Mapping[str, tuple[Any, ...]]) -> tuple[str, ...]:
    """Keys that are not honoured and whose value asks for something: `neutral` are the values that do not."""
    return tuple(key for key, nothing in neutral.items() if body.get(key) is not None and body[key] not in nothing)


def unsupported(key: str, what: str) -> SessionFault:
    return bad_request(what, code=f"unsupported_{key}")


def lowest(limits: Iterable[int | None]) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)
