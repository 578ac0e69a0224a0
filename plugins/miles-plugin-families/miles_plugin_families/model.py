"""A family's model: a checkpoint or a practice model, with the family's renderer."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from miles_core import BuildContext, ModelCard, ModelFiles, RequestError
from miles_plugin_families.catalog import FAMILIES, Family
from miles_plugin_families.folder import check_family, read_card
from miles_plugin_families.harmony import NAME, ORDINARY, read_from, vocabulary
from miles_plugin_families.images import PRACTICE, FamilyImages
from miles_plugin_families.library import library_renderer
from miles_plugin_families.options import FamilyOptions
from miles_plugin_families.packaged import write_ranks
from miles_plugin_families.practice import practice_card, practice_folder
from miles_plugin_families.renderer import FamilyRenderer
from miles_plugin_families.template import template_ids
from miles_plugin_families.tokenizer import FamilyTokenizer, tokenizer_of


class FamilyModel:
    """See `miles_core.ModelSpec`. The recipe names the family; nothing is detected."""

    def __init__(self, family: Family, options: FamilyOptions, context: BuildContext) -> None:
        self._family = family
        self._options = options

    def describe(self) -> ModelCard:
        """The card, without stop tokens: those are ids of the tokenizer, which `materialise` reads."""
        if self._options.practice is not None:
            return practice_card(self._family, self._options.practice, self._options.context)
        return read_card(self._path, self._options.context)

    def materialise(self) -> ModelFiles:
        """Raises RequestError when the checkpoint is another family's or its tokenizer lacks the format's tokens."""
        card = self.describe()
        tokenizer = self._tokenizer
        if tokenizer.size > card.vocabulary:
            raise RequestError(
                f"the tokenizer has {tokenizer.size} tokens, the model's vocabulary {card.vocabulary}",
                where=str(self._folder),
                mend="give the tokenizer that the model was trained with",
            )
        self.renderer()
        return ModelFiles(self._folder, card)

    def renderer(self) -> FamilyRenderer:
        return self._renderer

    @cached_property
    def _renderer(self) -> FamilyRenderer:
        library, config = self._library
        same = config.name == self._family.renderer  # else the options mean an older template, which nothing holds
        fields = config.template_field_names()
        settings = {name: value for name, value in config if name in fields and value is not None}
        return FamilyRenderer(
            library,
            self._tokenizer,
            as_sampled=self._options.history == "sampled",
            names_tools=self._family.names_tools,
            native_ids=self._family.native_ids,
            images=self._images,
            no_images=f"family {self._family.name} takes none: {self._family.no_images or 'its format has none'}",
            template_ids=template_ids(self._family, self._folder, self._tokenizer, settings) if same else None,
        )

    @cached_property
    def _library(self) -> tuple[Any, Any]:
        """The library's renderer and its configuration. Raises RequestError when the tokenizer lacks its tokens."""
        from renderers.configs import config_from_name

        name = self._options.renderer(self._family.renderer)
        config = type(config_from_name(name))(**self._options.settings())
        harmony = read_from(self._harmony_vocabulary()) if name == "gpt-oss" else nullcontext()
        try:
            with harmony:
                return library_renderer(name, self._tokenizer, config, self._images), config
        except Exception as error:  # assertions about the vocabulary, and a vocabulary that it cannot download
            raise RequestError(
                f"the format of {self._family.name} does not fit: {type(error).__name__}: {error}",
                where=str(self._folder),
                mend=f"give a checkpoint of {self._family.models}",
            ) from error  # fmt: skip

    @cached_property
    def _images(self) -> FamilyImages | None:
        """None for a family that takes no images."""
        spelling = self._family.placeholder
        placeholder = self._tokenizer.convert_tokens_to_ids(spelling) if spelling else None
        if placeholder is None:
            return None
        return FamilyImages(self._folder, placeholder, PRACTICE if self._options.practice is not None else None)

    def _harmony_vocabulary(self) -> Path:
        """From the checkpoint when it is not in the cache yet."""
        tokenizer = self._folder / "tokenizer.json"
        return vocabulary(lambda empty: write_ranks(tokenizer, ORDINARY, empty / NAME))

    @cached_property
    def _tokenizer(self) -> FamilyTokenizer:
        return tokenizer_of(self._folder)

    @cached_property
    def _folder(self) -> Path:
        if self._options.practice is not None:
            return practice_folder(self._family, self._options.practice)
        check_family(self._family, self._path)
        return self._path

    @cached_property
    def _path(self) -> Path:
        if self._options.path is None:
            raise RequestError(
                f"family {self._family.name} needs a checkpoint",
                where="model.path",
                mend="give a local Hugging Face directory as `path`, or a practice model: `practice: 64`",
            )
        path = Path(self._options.path).expanduser()
        if not path.is_dir():
            raise RequestError("the checkpoint's folder does not exist", where=f"model.path: {path}")
        return path


def __getattr__(name: str) -> Any:
    """`build_qwen3` and the others: the factory of each family."""
    for family in FAMILIES.values():
        if name == "build_" + family.name.replace("-", "_").replace(".", "_"):
            return partial(FamilyModel, family)
    raise AttributeError(name)
