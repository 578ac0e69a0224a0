"""What a recipe may write beside `use: xyz`."""

from miles_core import Options
from pydantic import Field


class XyzOptions(Options):
    """Which member of the family."""

    context: int = Field(default=256, gt=1, description="longest sequence, prompt and answer together, in tokens")
