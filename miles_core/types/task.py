"""A task: one row of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from miles_core.errors import ValidationError

Message = Mapping[str, Any]
"""One chat message, as in the OpenAI chat format: `role` (system, user, assistant, tool) and `content` (text, or a list
of parts with a `type`: `text`, or `image_url` with the image's bytes in its URL, see `ImageFile`). An assistant's may
have `reasoning_content` (text) and `tool_calls`, a list of `{id, type: "function", function: {name, arguments}}` with
the arguments as JSON text; a tool's has the `tool_call_id` that it answers. Any may have a `name`."""

ToolDefinition = Mapping[str, Any]
"""A tool that the model may call, as in the OpenAI chat format: `{type: "function", function: {name, description,
parameters}}`, with the parameters as a JSON schema."""


@dataclass(frozen=True, slots=True)
class Task:
    """One row of a dataset: a prompt with a label and metadata.

    `id` is unique within its data source and stable across runs: randomness is derived from it.
    `prompt` is text, or chat messages; a renderer turns either into tokens.
    `answer` is the label that rewards compare with (None: the task has none).
    Raises ValidationError when the id or the prompt is empty.
    """

    id: str
    prompt: str | tuple[Message, ...]
    answer: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.id:
            raise ValidationError("Task.id is empty", mend="give every row of the dataset an id")
        if not self.prompt:
            raise ValidationError(f"Task.prompt of task {self.id!r} is empty", mend="give text or chat messages")

    @property
    def messages(self) -> tuple[Message, ...]:
        """The prompt as chat messages; text becomes one user message."""
        if isinstance(self.prompt, str):
            return ({"role": "user", "content": self.prompt},)
        return self.prompt

    def to_data(self) -> dict[str, Any]:
        """The task as JSON data, as far as its metadata is."""
        return {"id": self.id, "prompt": self.prompt, "answer": self.answer, "metadata": self.metadata}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Task:
        """The inverse of `to_data`, also after a trip through JSON."""
        prompt = data["prompt"] if isinstance(data["prompt"], str) else tuple(data["prompt"])
        return cls(data["id"], prompt, data.get("answer"), data.get("metadata", {}))
