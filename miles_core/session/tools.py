"""The tools of a conversation in one normal form, and the ids of the calls that a reply makes.

A tool is what a renderer may read of it: `{type: "function", function: {name, description, parameters}}`, the last two
where they are given. Every other key (`strict`) is dropped. The order counts: a prompt lists the tools in it.
"""

from __future__ import annotations

import hashlib
from typing import Any

from miles_core.session.faults import SessionFault, bad_request
from miles_core.types.sequence import TokenArray
from miles_core.types.task import Message, ToolDefinition


def read_tools(given: Any) -> tuple[ToolDefinition, ...]:
    """The normal form of a request's tools; absent and null are none. Raises SessionFault (400) that names the tool: no
    list, not a function, without a name, a name twice."""
    if given is None:
        return ()
    if not isinstance(given, list):
        raise bad_request(f"`tools` is {type(given).__name__}, expected a list")
    tools = tuple(_tool(place, tool) for place, tool in enumerate(given))
    names = [tool["function"]["name"] for tool in tools]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise bad_request(f"two tools have the name {twice!r:.60}")
    return tools


def _tool(place: int, tool: Any) -> ToolDefinition:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind != "function":
        raise SessionFault(
            400,
            "unsupported_tools",
            f"tool {place} has the type {kind!r:.40}: only tools of the type `function` can be called",
        )
    function = tool.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not name:
        raise bad_request(f"tool {place} needs `function: {{name, description, parameters}}`")
    made: dict[str, Any] = {"name": name}
    for key, shape, what in (("description", str, "text"), ("parameters", dict, "a JSON schema")):
        value = function.get(key)
        if value is not None:
            if not isinstance(value, shape):
                raise bad_request(f"`{key}` of tool {name!r:.60} is {type(value).__name__}, expected {what}")
            made[key] = value
    return {"type": "function", "function": made}


def with_call_ids(reply: Message, turn: int, again: int, bridge: TokenArray, sampled: TokenArray) -> Message:
    """The reply with an id for each tool call that has none from the model's own format.

    Ids are a function of the turn's place and tokens, so that a repeated run repeats them, and no two calls of one
    conversation share one.
    """
    calls = reply.get("tool_calls")
    if not calls or all(call.get("id") for call in calls):
        return reply
    place = hashlib.blake2b(f"{turn}/{again}/".encode() + bridge.tobytes() + sampled.tobytes(), digest_size=9)
    named = [{"id": f"call_{place.hexdigest()}{index:02d}", **call} for index, call in enumerate(calls)]
    return {**reply, "tool_calls": named}
