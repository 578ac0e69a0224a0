"""What may stand beside `model: {use: huggingface}` and `model: {use: scratch}`."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from miles_core import ModelCard, Options

PRINTABLE = "\n" + "".join(chr(code) for code in range(32, 127))
SPECIAL = ("<pad>", "<bos>", "<eos>", "<sep>")
PAD, BOS, EOS, SEPARATOR = range(4)

ROLES = ("system", "user", "assistant", "tool")
"""Whose messages the renderers without a chat template read."""


class HuggingFaceOptions(Options):
    path: str = Field(min_length=1, description="a directory (config.json, safetensors, tokenizer.json) or a hub id")
    revision: str | None = Field(default=None, description="branch, tag or commit on the hub")
    context: PositiveInt | None = Field(default=None, description="longest sequence, when shorter than the model's own")


class ScratchOptions(Options):
    hidden: PositiveInt = Field(default=128, description="width")
    layers: PositiveInt = Field(default=4, description="transformer layers")
    heads: PositiveInt = Field(default=4, description="attention heads; divides `hidden`")
    kv_heads: PositiveInt | None = Field(default=None, description="key-value heads (default: as many as heads)")
    intermediate: PositiveInt | None = Field(default=None, description="width of the MLP (default: 4 x hidden)")
    context: PositiveInt = Field(default=128, description="longest sequence in tokens")
    characters: str = Field(
        default=PRINTABLE,
        min_length=1,
        description="the vocabulary: one token each, beside padding, begin, end and separator",
    )
    tied: bool = Field(default=True, description="whether the output layer is the embedding")
    rope_theta: float = Field(default=10000.0, gt=0, description="base of the rotary position encoding")
    seed: NonNegativeInt | None = Field(default=None, description="seed of the weights (default: the run's)")

    @field_validator("characters")
    @classmethod
    def _each_once(cls, characters: str) -> str:
        if twice := sorted({character for character in characters if characters.count(character) > 1}):
            raise ValueError(f"contains more than once: {''.join(twice)!r}")
        return characters

    @model_validator(mode="after")
    def _heads_divide(self) -> ScratchOptions:
        if self.hidden % self.heads or self.head_size % 2:
            raise ValueError(f"hidden {self.hidden} over {self.heads} heads is not an even size for each head")
        if self.heads % self.key_value_heads:
            raise ValueError(f"kv_heads {self.key_value_heads} does not divide heads {self.heads}")
        return self

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads

    @property
    def key_value_heads(self) -> int:
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def mlp(self) -> int:
        return 4 * self.hidden if self.intermediate is None else self.intermediate

    @property
    def vocabulary(self) -> int:
        return len(SPECIAL) + len(self.characters)

    @property
    def parameters(self) -> int:
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.head_size * self.key_value_heads
        layer = attention + 3 * self.hidden * self.mlp + 2 * self.hidden
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return embeddings + self.layers * layer + self.hidden

    def model_card(self) -> ModelCard:
        return ModelCard(
            name=f"scratch-{self.layers}x{self.hidden}",
            architecture="LlamaForCausalLM",
            context=self.context,
            vocabulary=self.vocabulary,
            hidden=self.hidden,
            layers=self.layers,
            parameters=self.parameters,
            stop_tokens=(EOS,),
            tied_embeddings=self.tied,
        )

    def card(self) -> Mapping[str, str]:
        return {"starting weights": f"random: normal with deviation 0.02, {self.parameters:,} parameters"}
