"""What a directory says of its tokenizer: tokenizer.json, the chat template, the named special tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from miles_core import Renderer, RequestError
from miles_plugin_huggingface.folder import read_json
from miles_plugin_huggingface.plain_renderer import PlainRenderer
from miles_plugin_huggingface.template_renderer import TemplateRenderer

_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """`template` is None when the model has no chat format; `special` maps e.g. `bos_token` to its text."""

    tokenizer: Tokenizer
    template: str | None
    special: Mapping[str, str]
    where: Path

    @classmethod
    def read(cls, folder: Path) -> TokenizerFiles:
        """Raises RequestError when tokenizer.json is missing or unreadable."""
        path = folder / "tokenizer.json"
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise RequestError(f"the tokenizer cannot be read: {error}", where=str(path)) from error
        config = (
            read_json(path.with_name("tokenizer_config.json")) if (folder / "tokenizer_config.json").is_file() else {}
        )
        tokenizer.no_padding()
        tokenizer.no_truncation()
        special = {name: _text(config[name]) for name in _NAMED if config.get(name)}
        return cls(tokenizer, _template(folder, config), special, folder)

    def renderer(self, stop_tokens: tuple[int, ...]) -> Renderer:
        if self.template is None:
            return PlainRenderer(self.tokenizer, stop_tokens)
        return TemplateRenderer(self.tokenizer, self.template, self.special, stop_tokens, where=str(self.where))


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):  # several, by name
        return next((str(one["template"]) for one in template if one["name"] == "default"), None)
    return None if template is None else str(template)


def _text(token: str | Mapping[str, Any]) -> str:
    return token if isinstance(token, str) else str(token["content"])
