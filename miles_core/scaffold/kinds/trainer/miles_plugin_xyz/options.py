"""What a recipe may write beside `use: xyz`."""

from miles_core import TrainerOptions
from pydantic import Field


class XyzOptions(TrainerOptions):
    """How to descend; `optimizer_steps` says how often for each batch."""

    learning_rate: float = Field(default=50.0, gt=0, allow_inf_nan=False, description="size of a step")
    momentum: float = Field(default=0.0, ge=0, lt=1, description="share of the last step that is kept in this one")
