"""What a recipe may write beside `use: xyz`."""

from collections.abc import Mapping

from miles_core import Options
from pydantic import Field


class XyzOptions(Options):
    """How large advantages are."""

    scale: float = Field(default=1.0, gt=0, allow_inf_nan=False, description="advantage of the best of a group")

    def card(self) -> Mapping[str, str]:
        return {"advantage": f"rank within the group, from -{self.scale:g} to {self.scale:g}"}
