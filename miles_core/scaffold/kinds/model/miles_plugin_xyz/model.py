"""A model family: its card, its files, its renderer."""

import json
from pathlib import Path

from miles_core import BuildContext, ModelCard, ModelFiles, cache_root, make_once

from miles_plugin_xyz.options import XyzOptions
from miles_plugin_xyz.renderer import STOP, VOCABULARY, AsciiRenderer


class XyzModel:
    """See `miles_core.ModelSpec`. Runs in the driver, without torch."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._options = options

    def describe(self) -> ModelCard:
        """From the options alone: `miles plan` calls it before anything is downloaded."""
        return ModelCard(
            name="xyz",
            architecture="Logits",
            context=self._options.context,
            vocabulary=VOCABULARY,
            hidden=1,
            layers=0,
            parameters=VOCABULARY,
            stop_tokens=(STOP,),
        )

    def materialise(self) -> ModelFiles:
        folder = cache_root() / f"xyz-{self._options.context}"
        return ModelFiles(make_once(folder, self._make, what="model xyz"), self.describe())

    def renderer(self) -> AsciiRenderer:
        return AsciiRenderer()

    def _make(self, folder: Path) -> None:
        """Fill the empty `folder`. When this raises, nothing is left behind."""
        config = {"architectures": ["Logits"], "vocab_size": VOCABULARY, "eos_token_id": STOP}
        (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": self._options.context}))
