"""The library's renderer of a format, or ours where the library's is not what the checkpoints' own template writes."""

from __future__ import annotations

from typing import Any

from miles_plugin_families.images import FamilyImages
from miles_plugin_families.tokenizer import FamilyTokenizer


def library_renderer(name: str, tokenizer: FamilyTokenizer, config: Any, images: FamilyImages | None = None) -> Any:
    """`images` is who processes them, where the format has some. Raises whatever the library does for a tokenizer that
    lacks the format's tokens."""
    if name == "glm-4.5":
        from miles_plugin_families.glm45 import Glm45

        return Glm45(tokenizer, config)
    if name == "gpt-oss":
        from miles_plugin_families.gpt_oss import GptOss

        return GptOss(tokenizer, config)
    from renderers.base import create_renderer

    made = create_renderer(tokenizer, config)
    return made if images is None else type(made)(tokenizer, config, processor=images)
