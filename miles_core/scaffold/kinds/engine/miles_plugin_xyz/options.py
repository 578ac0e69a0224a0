"""What a recipe may write beside `use: xyz`."""

from miles_core import Options
from pydantic import Field


class XyzOptions(Options):
    """How the engine works."""

    tensor: str = Field(default="logits", min_length=1, description="name of the vector in an update")
