"""The `match` reward: compares the model's answer with the task's."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from miles_core.contracts.component import BuildContext
from miles_core.contracts.options import Options
from miles_core.types.trajectory import Group, Score


class MatchOptions(Options):
    """How to compare, after stripping white space at both ends."""

    mode: Literal["equal", "contains"] = Field(default="equal", description="the whole text, or somewhere in it")
    ignore_case: bool = Field(default=False, description="compare without case")


class MatchReward:
    """1 for a match, 0 for none, no verdict for a task without an answer."""

    def __init__(self, options: MatchOptions, context: BuildContext) -> None:
        self._options = options

    async def score(self, group: Group) -> list[Score | None]:
        if group.task.answer is None:
            return [None] * len(group.trajectories)
        answer = self._normal(group.task.answer)
        return [Score(float(self._matches(answer, self._normal(t.text)))) for t in group.trajectories]

    def _normal(self, text: str) -> str:
        return text.strip().lower() if self._options.ignore_case else text.strip()

    def _matches(self, answer: str, text: str) -> bool:
        return answer in text if self._options.mode == "contains" else answer == text
