"""The model `huggingface`: a directory that is there, or one from the hub."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from miles_core import BuildContext, ModelCard, ModelFiles, Renderer, RequestError
from miles_plugin_huggingface import hub
from miles_plugin_huggingface.folder import check_folder, read_card
from miles_plugin_huggingface.options import HuggingFaceOptions
from miles_plugin_huggingface.safetensors_header import has_weights


class HuggingFaceModel:
    """Its `path` is a directory when one of that name exists, else a hub id."""

    def __init__(self, options: HuggingFaceOptions, context: BuildContext) -> None:
        self._options = options

    def describe(self) -> ModelCard:
        """Of a hub id it fetches config.json alone, and asks the hub for the sizes of weights that are not here yet."""
        path, revision, context = self._options.path, self._options.revision, self._options.context
        if (local := self._local) is not None:
            return read_card(local, name=local.resolve().name, context=context)
        folder = hub.configuration_folder(path, revision)
        count = None if has_weights(folder) else hub.parameter_count(path, revision)
        return read_card(folder, name=path, context=context, parameters=count)

    def materialise(self) -> ModelFiles:
        folder = self._folder
        check_folder(folder)
        name = self._options.path if self._local is None else folder.resolve().name
        return ModelFiles(folder, read_card(folder, name=name, context=self._options.context))

    def renderer(self) -> Renderer:
        """By the model's chat template; without one, messages are joined as plain text."""
        from miles_plugin_huggingface.tokenizer_files import TokenizerFiles

        folder = self._folder
        stop_tokens = self.materialise().card.stop_tokens
        return TokenizerFiles.read(folder).renderer(stop_tokens)

    @cached_property
    def _local(self) -> Path | None:
        """The directory; None for a hub id. Raises RequestError when the path can be neither."""
        path = Path(self._options.path).expanduser()
        if path.is_dir():
            return path
        if hub.is_hub_id(self._options.path):
            return None
        what = "the model's folder is a file" if path.exists() else "the model's folder does not exist"
        raise RequestError(what, where=f"model.path: {path}", mend="give a Hugging Face directory or a hub id")

    @cached_property
    def _folder(self) -> Path:
        return hub.snapshot(self._options.path, self._options.revision) if self._local is None else self._local
