"""What may stand beside `model: {use: qwen3}` and the other families. Each class is one set of knobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, PositiveInt, model_validator

from miles_core import Options

History = Literal["sampled", "template"]


class FamilyOptions(Options):
    """Where the model is, and how its conversations are kept."""

    path: str | None = Field(default=None, min_length=1, description="the checkpoint: a local Hugging Face directory")
    practice: PositiveInt | None = Field(
        default=None,
        multiple_of=8,
        description="instead of a checkpoint: width of a small Llama with random weights, for practice and tests",
    )
    context: PositiveInt | None = Field(default=None, description="longest sequence, when shorter than the model's own")
    history: History = Field(
        default="sampled",
        description="earlier turns of the assistant: `sampled`: as a session holds them, reasoning kept; `template`: "
        "as the template rewrites them, and a session is refused where that would change what was sampled",
    )

    @model_validator(mode="after")
    def _one_source(self) -> FamilyOptions:
        if self.path is not None and self.practice is not None:
            raise ValueError("say `path` or `practice`, not both")
        return self

    def settings(self) -> dict[str, Any]:
        """The options of that renderer."""
        return {"thinking_retention": "all"} if self.history == "sampled" else {}

    def renderer(self, name: str) -> str:
        """The family's renderer in the library, which is called `name` unless the options mean another."""
        return name

    def card(self) -> Mapping[str, str]:
        if self.practice is None:
            return {}
        return {"starting weights": f"random: a Llama of width {self.practice} with the family's chat format"}


class ThinkingOptions(FamilyOptions):
    thinking: bool = Field(default=True, description="whether the assistant may reason before it answers")

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "enable_thinking": self.thinking}


class Qwen36Options(ThinkingOptions):
    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "preserve_thinking": self.history == "sampled"}


class Qwen38Options(Qwen36Options):
    effort: Literal["xhigh", "medium", "low"] = Field(default="xhigh", description="how long it reasons")

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "reasoning_effort": self.effort}


class Glm5Options(ThinkingOptions):
    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "clear_thinking": self.history != "sampled"}


class Glm53Options(FamilyOptions):
    effort: Literal["low", "high", "max"] = Field(default="max", description="how long it reasons")

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "clear_thinking": self.history != "sampled", "reasoning_effort": self.effort}


class KimiK25Options(FamilyOptions):
    thinking: bool = Field(default=True, description="whether the assistant may reason before it answers")

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "thinking": self.thinking}


class DeepSeekV4Options(FamilyOptions):
    thinking: bool = Field(default=False, description="whether the assistant may reason before it answers")
    effort: Literal["low", "high", "max"] = Field(default="low", description="how long it reasons, when it does")

    def settings(self) -> dict[str, Any]:
        own = {
            "enable_thinking": self.thinking,
            "drop_thinking": self.history != "sampled",
            "reasoning_effort": self.effort,
        }
        return {**super().settings(), **own}


class DeepSeekR1Options(FamilyOptions):
    opens_thinking: bool = Field(
        default=True,
        description="whether the assistant's turn is opened inside its reasoning, as the template does now",
    )

    def renderer(self, name: str) -> str:
        return name if self.opens_thinking else "deepseek-v3"


class MiniMaxOptions(FamilyOptions):
    identity: str | None = Field(
        default=None, description="persona of conversations that bring no system message (default: the template's own)"
    )

    def settings(self) -> dict[str, Any]:
        own = {} if self.identity is None else {"model_identity": self.identity}
        return {**super().settings(), **own}


class NemotronOptions(ThinkingOptions):
    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "truncate_history_thinking": self.history != "sampled"}


class GptOssOptions(FamilyOptions):
    effort: Literal["low", "medium", "high"] = Field(default="medium", description="how long it reasons")
    date: str = Field(default="2025-08-05", description="the date that its system message states, YYYY-MM-DD")

    def settings(self) -> dict[str, Any]:
        own = {"auto_drop_analysis": self.history != "sampled", "reasoning_effort": self.effort}
        return {**super().settings(), **own, "conversation_start_date": self.date}


class InklingOptions(FamilyOptions):
    effort: float = Field(default=0.9, ge=0, le=0.99, description="how long it reasons")

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "reasoning_effort": self.effort}


class Llama3Options(FamilyOptions):
    date: str = Field(default="26 Jul 2024", description="the date that its system message states")
    tools_in_user_message: bool = Field(
        default=True, description="whether tools are described in the first user message, or in the system message"
    )

    def settings(self) -> dict[str, Any]:
        own = {"date_string": self.date, "tools_in_user_message": self.tools_in_user_message}
        return {**super().settings(), **own}
