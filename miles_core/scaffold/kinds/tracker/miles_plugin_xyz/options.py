"""What a recipe may write beside `use: xyz`."""

from miles_core import Options
from pydantic import Field


class XyzOptions(Options):
    """Where to write, and what."""

    file: str = Field(default="metrics.csv", pattern=r"^[\w.-]+$", description="name of a file in the run's folder")
    prefix: str = Field(default="", description="only metrics whose names begin so")
