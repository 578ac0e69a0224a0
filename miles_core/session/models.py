"""`GET …/v1/models` and `…/v1/models/NAME`, in one body that OpenAI's and Anthropic's clients both read."""

from __future__ import annotations

from typing import Any

SINCE = "1970-01-01T00:00:00Z"


def one(name: str, context: int) -> dict[str, Any]:
    """A model; `max_model_len` is the longest sequence in tokens."""
    openai = {"id": name, "object": "model", "created": 0, "owned_by": "miles", "max_model_len": context}
    return {**openai, "type": "model", "display_name": name, "created_at": SINCE}


def listing(name: str, context: int) -> dict[str, Any]:
    """All of them: one."""
    pages = {"has_more": False, "first_id": name, "last_id": name}
    return {"object": "list", "data": [one(name, context)], **pages}
