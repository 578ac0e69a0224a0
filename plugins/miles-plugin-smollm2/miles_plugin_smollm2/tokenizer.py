"""The tokenizer of the GGUF file as `tokenizer.json`.

The file names its splitting rule `smollm`. In llama.cpp that is two regular expressions, applied one after the other:
`\\p{N}`, so that every digit stands alone, then GPT-2's. `Digits` followed by `ByteLevel` is the same in the tokenizers
library, and what the model was trained with. (transformers' own GGUF import leaves the first out. The merges were
learned on text that was split, so none joins ASCII digits and the two differ only around spaces before digits and on
other numerals; a test compares them.)

The vocabulary has no token for a few bytes (six control characters; what only code points from U+40000 on are spelt
with): as with the original tokenizer, such a byte is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from miles_plugin_smollm2.facts import UNKNOWN

_CONTROL = 3
"""GGUF's token type of a token that text cannot spell."""


def write_tokenizer(path: Path, *, tokens: Sequence[str], kinds: Sequence[int], merges: Sequence[str]) -> None:
    """Byte-level BPE from the lists of a GGUF file: all tokens by id, their types, merges in order of rank."""
    pairs = [(left, right) for left, right in (merge.split(" ") for merge in merges)]
    tokenizer = Tokenizer(BPE(vocab={token: id for id, token in enumerate(tokens)}, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    tokenizer.save(str(path))


def tokenizer_config(tokens: Sequence[str], config: dict[str, Any], chat_template: str) -> dict[str, Any]:
    """What `transformers.AutoTokenizer` reads beside tokenizer.json."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[config["bos_token_id"]],
        "eos_token": tokens[config["eos_token_id"]],
        "pad_token": tokens[config["pad_token_id"]],
        "unk_token": tokens[UNKNOWN],
        "model_max_length": config["max_position_embeddings"],
        "clean_up_tokenization_spaces": False,
        "chat_template": chat_template,
    }
