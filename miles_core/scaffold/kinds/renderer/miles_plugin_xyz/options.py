"""What may be said beside the renderer's name."""

from miles_core import Options
from pydantic import Field


class XyzOptions(Options):
    """How a message looks."""

    separator: str = Field(default=": ", min_length=1, description="between a role and what it says")
