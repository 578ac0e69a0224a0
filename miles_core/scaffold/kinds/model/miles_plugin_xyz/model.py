"""A model family: its card, its files, its renderer."""

from pathlib import Path

import numpy as np
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
        """Fill the empty `folder`; nothing is left behind when this raises.

        A real family writes config.json, tokenizer.json and weights as safetensors, so that any engine reads them.
        """
        np.save(folder / "logits.npy", np.zeros(VOCABULARY, np.float32))
