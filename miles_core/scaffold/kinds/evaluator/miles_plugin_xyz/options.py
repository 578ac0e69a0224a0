"""What a recipe may write beside `use: xyz`."""

from collections.abc import Mapping
from typing import Self

from miles_core import EvaluatorOptions
from pydantic import Field, PositiveInt, model_validator


class XyzOptions(EvaluatorOptions):
    """What to measure. `every` and `time_limit` are there for every evaluator; the first and the last always happen."""

    name: str = Field(default="pass", description="the evaluation's name in metrics and reports")
    tasks: PositiveInt = Field(default=64, description="held-out tasks")
    attempts: PositiveInt = Field(default=8, description="attempts at each task")
    k: PositiveInt = Field(default=4, description="attempts of which one must be right")
    threshold: float = Field(default=1.0, description="reward from which an attempt is right")

    @model_validator(mode="after")
    def _enough_attempts(self) -> Self:
        if self.k > self.attempts:
            raise ValueError(f"k is {self.k}, more than the {self.attempts} attempts")
        return self

    def card(self) -> Mapping[str, str]:
        return {"score": f"pass@{self.k} from {self.attempts} attempts; right: a reward of {self.threshold:g} or more"}
