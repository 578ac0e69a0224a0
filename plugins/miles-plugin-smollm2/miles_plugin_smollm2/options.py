"""What may stand beside `model: {use: smollm2}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from miles_core import Options

DEFAULT_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
"""What the model's own chat template says before a conversation that brings no system message."""


class SmolLM2Options(Options):
    system: str = Field(
        default=DEFAULT_SYSTEM,
        description="system message of conversations that bring none (default: the chat template's own); "
        "empty: such conversations have no system message at all, which the model was not trained on",
    )

    tools: Literal["json"] | None = Field(
        default=None,
        description="how tools are written, which the checkpoint was not trained on; json: this plugin's own format; "
        "absent: a conversation with tools is refused",
    )

    def card(self) -> Mapping[str, str]:
        told = {}
        if self.system != DEFAULT_SYSTEM:
            told["default system message"] = repr(self.system) if self.system else "none"
        if self.tools:
            told["tools"] = "calls as JSON text, in a format that the checkpoint was not trained on"
        return told
