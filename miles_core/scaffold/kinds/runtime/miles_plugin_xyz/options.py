"""What a recipe may write beside `use: xyz`."""

from miles_core import Options
from pydantic import Field


class XyzOptions(Options):
    """Where the times go."""

    file: str = Field(default="calls.csv", pattern=r"^[\w.-]+$", description="name of a file in the run's folder")
