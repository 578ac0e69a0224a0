"""Typed Python functions as tools: their schemas, and what becomes of every kind of call."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from pydantic import Field

from miles_core import RealClock, RequestError
from miles_core.rollout.python_tools import PythonTool, load_tools


def search(query: Annotated[str, Field(description="words")], limit: int = 3, kind: Literal["a", "b"] = "a") -> list:
    """Search the shelves.

    The newest first.
    """
    return [query, limit, kind]


@dataclass
class Point:
    x: int
    y: int


def length(points: list[Point]) -> float:
    return float(sum(abs(point.x) + abs(point.y) for point in points))


def named(copy: int, model_name: str, json: bool = True) -> str:
    return f"{copy} {model_name} {json}"


async def nothing() -> None:
    """No parameters."""


async def asked(tool, arguments, seconds=5.0):
    return await PythonTool(tool).call(arguments, seconds, RealClock())


def test_a_signature_is_a_schema():
    assert PythonTool(search).definition == {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search the shelves.\n\nThe newest first.",
            "parameters": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "query": {"type": "string", "description": "words"},
                    "limit": {"type": "integer", "default": 3},
                    "kind": {"type": "string", "enum": ["a", "b"], "default": "a"},
                },
                "required": ["query"],
            },
        },
    }
    assert "description" not in PythonTool(length).definition["function"]
    assert PythonTool(nothing).definition["function"]["parameters"]["properties"] == {}


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        (search, '{"query": "é"}', '["é",3,"a"]'),
        (search, '{"query": "x", "limit": "5", "kind": "b"}', '["x",5,"b"]'),
        (length, '{"points": [{"x": 1, "y": -2}, {"x": 3, "y": 0}]}', "6.0"),
        (nothing, "", "null"),
        (named, '{"copy": 1, "model_name": "x"}', "1 x True"),
    ],
)
async def test_results_are_text(tool, arguments, text):
    result = await asked(tool, arguments)
    assert (result.text, result.failed) == (text, False)


def fails(why: str) -> str:
    if why == "exit":
        raise SystemExit(3)
    if why == "stop":
        raise StopIteration
    raise KeyError(why)


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        (search, "{}", "error: query: Field required"),
        (search, '{"query": 3}', "error: query: Input should be a valid string"),
        (search, '{"query": "x", "other": 1}', "error: other: Extra inputs are not permitted"),
        (search, "{no", "error: Invalid JSON"),
        (search, "[]", "error: Input should be an object"),
        (fails, '{"why": "lost"}', "error: KeyError: 'lost'"),
        (fails, '{"why": "exit"}', "error: RuntimeError: the tool called sys.exit(3)"),
        (fails, '{"why": "stop"}', "error: RuntimeError"),
    ],
)
async def test_a_failure_is_a_text_for_the_model(tool, arguments, text):
    result = await asked(tool, arguments)
    assert result.failed and result.text.startswith(text), result.text


async def test_a_call_that_hangs_ends_by_its_limit():
    released, cancelled = threading.Event(), asyncio.Event()

    def sync_hang() -> str:
        released.wait(10)
        return "late"

    async def async_hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    for tool in (sync_hang, async_hang):
        result = await asked(tool, "{}", seconds=0.05)
        assert (result.text, result.failed) == ("error: no result after 0.05 seconds", True)
    await asyncio.wait_for(cancelled.wait(), 1)
    released.set()


async def test_cancelling_leaves_at_once():
    released = threading.Event()

    def hang() -> None:
        released.wait(10)

    task = asyncio.create_task(asked(hang, "{}"))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 1)
    released.set()


def untyped(x):
    pass


def starred(*x: int):
    pass


def unknown(x: threading.Event):
    pass


@pytest.mark.parametrize(
    ("tool", "why"),
    [(untyped, "'x' of tool 'untyped' has no type"), (starred, "cannot be given by name"), (unknown, "no JSON schema")],
)
def test_what_cannot_be_a_tool_is_refused(tool, why):
    with pytest.raises(RequestError, match=why):
        PythonTool(tool)


def test_tools_are_found_by_path():
    path = "miles_core.testing.fakes.adding_tool:add"
    assert list(load_tools((path,))) == ["add"]
    for wrong, why in (("nowhere:f", "not there"), ("json:nothing", "not there"), ("json", "module:function")):
        with pytest.raises(RequestError, match=why):
            load_tools((wrong,))
    with pytest.raises(RequestError, match="two tools have the name"):
        load_tools((path, path))
