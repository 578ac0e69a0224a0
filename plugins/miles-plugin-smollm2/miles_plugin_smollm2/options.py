"""What may stand beside `model: {use: smollm2}`."""

from __future__ import annotations

from collections.abc import Mapping

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

    def card(self) -> Mapping[str, str]:
        if self.system == DEFAULT_SYSTEM:
            return {}
        return {"default system message": repr(self.system) if self.system else "none"}
