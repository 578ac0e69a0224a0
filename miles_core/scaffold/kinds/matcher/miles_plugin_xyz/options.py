"""What may be said beside the matcher's name."""

from collections.abc import Mapping

from miles_core import Options
from pydantic import Field


class XyzOptions(Options):
    """What counts as equal."""

    ignore_case: bool = Field(default=False, description="compare without case, too")

    def card(self) -> Mapping[str, str]:
        return {"equal": "up to white space" + (" and case" if self.ignore_case else "")}
