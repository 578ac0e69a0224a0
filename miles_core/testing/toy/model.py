"""The toy model: a vector of logits over ASCII, spoken by the characters' own renderer."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from miles_core.contracts.component import BuildContext
from miles_core.contracts.model import ModelCard, ModelFiles
from miles_core.contracts.options import Options
from miles_core.testing.fakes.char_image_renderer import CharImageRenderer
from miles_core.testing.fakes.char_renderer import STOP, VOCABULARY, CharRenderer

TENSOR = "logits"


class ToyModelOptions(Options):
    """Options of the toy model."""

    context: int = Field(default=256, gt=1, description="longest sequence in tokens")
    images: bool = Field(
        default=False, description="whether prompts may show images, of which it sees as little as of text"
    )


class ToyModel:
    """See `contracts.model.ModelSpec`. There are no files: every weight starts at zero."""

    def __init__(self, options: ToyModelOptions, context: BuildContext) -> None:
        self._context = options.context
        self._images = options.images

    def describe(self) -> ModelCard:
        return ModelCard(
            name="toy",
            architecture="Toy",
            context=self._context,
            vocabulary=VOCABULARY,
            hidden=1,
            layers=0,
            parameters=VOCABULARY,
            stop_tokens=(STOP,),
        )

    def materialise(self) -> ModelFiles:
        return ModelFiles(Path(__file__).parent, self.describe())

    def renderer(self) -> CharRenderer:
        return CharImageRenderer() if self._images else CharRenderer()
