"""Tokens of plain text, whatever the library raises."""

from __future__ import annotations

from tokenizers import Tokenizer


def text_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids with no special tokens added. Raises ValueError for text that the tokenizer has no tokens for."""
    try:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)
    except Exception as error:
        if type(error) is not Exception:  # the library raises the bare class for text outside its vocabulary
            raise
        raise ValueError(f"the tokenizer has no tokens for {text!r:.80}: {error}") from error
