"""What a recipe may write beside `use: xyz`."""

from pathlib import Path

from miles_core import Options
from pydantic import Field


class XyzOptions(Options):
    """Where the files lie meanwhile."""

    folder: Path | None = Field(default=None, description="an existing folder; the run's own one when absent")
