"""What sampled tokens say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from miles_core import Parsed
from miles_plugin_families.tokenizer import FamilyTokenizer

_WORDS = {"True": True, "False": False, "None": None}


def parsed(
    library: Any,
    tokenizer: FamilyTokenizer,
    ids: list[int],
    tools: Sequence[Any] | None,
    opening: list[int],
    stops: tuple[int, ...],
) -> Parsed:
    """The assistant's message, for any ids. `opening` are the ids that stood before them: they tell whether the answer
    begins inside its reasoning. A call that cannot be read stays in the content as it was written."""
    end = next((place for place, id in enumerate(ids) if id in stops), len(ids))
    complete = end < len(ids)
    try:
        found = library.parse_response(ids[: end + 1], tools=tools, prompt_ids=opening)
    except Exception:  # a policy samples anything: what is no answer of the format is text
        return Parsed({"role": "assistant", "content": _text(tokenizer, ids[:end])}, complete)
    spelt = [token for token, id in tokenizer.special.items() if id in set(ids)]
    content = _without(spelt, found.content or "").lstrip("\n")
    calls = []
    for call in found.tool_calls or ():
        if call.name and (str(call.status) == "ok" or _python_words(call, tools)):
            calls.append(_call(call))
        elif call.raw and call.raw not in content:
            content += call.raw
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reasoning := _without(spelt, found.reasoning_content or ""):
        message["reasoning_content"] = reasoning
    if calls:
        message["content"] = content.rstrip("\n")  # line ends between the text and the calls are the format's
        message["tool_calls"] = calls
    return Parsed(message, complete)


def _python_words(call: Any, tools: Sequence[Any] | None) -> bool:
    """Put JSON's true, false and null for Python's where the schema wants no text: several templates write Python's, so
    their models may say it too. Whether every argument is good then."""
    if str(call.status) != "invalid_json" or not isinstance(call.arguments, dict):
        return False
    functions = (tool["function"] for tool in tools or ())
    schema = next((each.get("parameters", {}) for each in functions if each["name"] == call.name), {})
    texts = {key for key, value in call.arguments.items() if isinstance(value, str) and not _is_text(schema, key)}
    if not texts or any(call.arguments[key].strip() not in _WORDS for key in texts):
        return False
    call.arguments = {k: _WORDS[v.strip()] if k in texts else v for k, v in call.arguments.items()}
    return True


def _is_text(schema: Mapping[str, Any], key: str) -> bool:
    kind = schema.get("properties", {}).get(key, {}).get("type", "string")
    return "string" in ([kind] if isinstance(kind, str) else kind)


def _call(call: Any) -> dict[str, Any]:
    arguments = (
        call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments or {}, ensure_ascii=False)
    )
    made = {"type": "function", "function": {"name": call.name, "arguments": arguments}}
    return {"id": call.id, **made} if call.id else made


def _without(spelt: Sequence[str], text: str) -> str:
    for token in spelt:
        text = text.replace(token, "")
    return text


def _text(tokenizer: FamilyTokenizer, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True)
