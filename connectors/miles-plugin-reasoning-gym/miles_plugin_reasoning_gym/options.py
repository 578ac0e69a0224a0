"""What may stand beside `data: {use: reasoning-gym}` and `rewards: [{use: reasoning-gym}]`.

Validating `tasks` asks reasoning-gym itself which generators there are and what each accepts. That import takes about
1.6 CPU seconds and happens only when a recipe uses this data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator

from miles_core import Options

QUESTION = "{question}"


class TaskOptions(Options):
    """One generator of a mixture."""

    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False, description="its share, relative to the others'")
    config: dict[str, Any] = Field(
        default_factory=dict, description="fields of the generator's configuration, e.g. {min_terms: 2, max_terms: 3}"
    )


class DataOptions(Options):
    tasks: dict[str, TaskOptions] = Field(
        description="reasoning-gym generators: a list of names, or name: {weight, config}", min_length=1
    )
    size: PositiveInt = Field(default=1000, description="training tasks; an epoch draws each once, in shuffled order")
    seed: NonNegativeInt | None = Field(default=None, description="seed of the training tasks (default: the run's)")
    epochs: PositiveInt | None = Field(default=None, description="end after this many epochs (default: never)")
    held_out: NonNegativeInt = Field(
        default=128, description="held-out tasks: of distinct prompts, none of which is ever a training prompt"
    )
    held_out_seed: NonNegativeInt = Field(
        default=0, description="seed of the held-out tasks; apart from the run's, so that seeds compare on equal tasks"
    )
    system: str = Field(default="", description="system message before each task (default: none)")
    prompt: str = Field(default=QUESTION, description="the user message; {question} stands for the generated question")
    examples: NonNegativeInt = Field(
        default=0,
        le=64,
        description="solved tasks before each task, as earlier turns of the conversation: the same ones for all tasks, "
        "and never themselves trained on or held out",
    )

    @field_validator("tasks", mode="before")
    @classmethod
    def _names_become_a_mixture(cls, tasks: Any) -> Any:
        if isinstance(tasks, str):
            tasks = [tasks]
        if isinstance(tasks, list) and all(isinstance(name, str) for name in tasks):
            if twice := sorted({name for name in tasks if tasks.count(name) > 1}):
                raise ValueError(f"named twice: {', '.join(twice)}; give a weight instead")
            return {name: {} for name in tasks}
        if isinstance(tasks, Mapping):
            return {name: {} if task is None else task for name, task in tasks.items()}
        return tasks

    @field_validator("tasks")
    @classmethod
    def _generators_accept(cls, tasks: dict[str, TaskOptions]) -> dict[str, TaskOptions]:
        from miles_plugin_reasoning_gym.generators import faults

        if found := [fault for name, task in tasks.items() for fault in faults(name, task.config)]:
            raise ValueError("; ".join(found))
        return tasks

    @field_validator("prompt")
    @classmethod
    def _prompt_has_the_question(cls, prompt: str) -> str:
        if QUESTION not in prompt:
            raise ValueError(f"must contain {QUESTION}, where the generated question goes")
        return prompt

    def card(self) -> Mapping[str, str]:
        examples = {"solved examples in each prompt": str(self.examples)} if self.examples else {}
        return examples | {
            "held-out tasks": f"{self.held_out} distinct prompts, seed {self.held_out_seed}, never trained on"
        }


_SCORED = {
    "whole": "the whole text",
    "first-line": "the first line that is not empty",
    "last-line": "the last line that is not empty",
    "last-number": "the last number in the text",
    "answer-tag": "what stands in the last <answer>...</answer>",
}


class RewardOptions(Options):
    extract: Literal["whole", "first-line", "last-line", "last-number", "answer-tag"] = Field(
        default="whole",
        description="which part of the model's text is scored: all of it, its first or last line that is not empty, "
        "the last number in it, or what stands in the last <answer>...</answer>",
    )
    exact: bool = Field(
        default=False, description="1 when the generator's score is full, else 0: accuracy instead of a graded score"
    )
    contained: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="least score of a text that contains the right answer as a word of its own, wherever it stands",
    )
    unreadable: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="score of an answer on which the generator's own scorer raises (default: an error ends the run)",
    )

    def card(self) -> Mapping[str, str]:
        what = _SCORED[self.extract]
        graded = f"the generator's graded score of {what}"
        if self.exact:
            graded = f"1 if the generator's score of {what} is full, else 0"
        contained = f"; at least {self.contained} if the answer is contained" if self.contained else ""
        return {"reasoning-gym reward": f"{graded}{contained}"}
