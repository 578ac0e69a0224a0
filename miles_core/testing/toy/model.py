"""The toy model: a vector of logits over ASCII, and a renderer that maps characters to their codes."""

from __future__ import annotations

from collections.abc import Sequence as Several
from pathlib import Path

import numpy as np
from pydantic import Field

from miles_core.contracts.component import BuildContext
from miles_core.contracts.model import ModelCard, ModelFiles, Parsed
from miles_core.contracts.options import Options
from miles_core.types.sequence import TokenArray
from miles_core.types.task import Message

VOCABULARY = 128
STOP = 0
TENSOR = "logits"


class ToyModelOptions(Options):
    """Options of the toy model."""

    context: int = Field(default=256, gt=1, description="longest sequence in tokens")


class ToyModel:
    """See `contracts.model.ModelSpec`. There are no files: every weight starts at zero."""

    def __init__(self, options: ToyModelOptions, context: BuildContext) -> None:
        self._context = options.context

    def describe(self) -> ModelCard:
        return ModelCard(
            name="toy",
            architecture="Toy",
            context=self._context,
            vocabulary=VOCABULARY,
            hidden=1,
            layers=0,
            parameters=VOCABULARY,
            stop_tokens=(STOP,),
        )

    def materialise(self) -> ModelFiles:
        return ModelFiles(Path(__file__).parent, self.describe())

    def renderer(self) -> ToyRenderer:
        return ToyRenderer()


class ToyRenderer:
    """A token is an ASCII code; STOP ends the assistant's turn; a newline stands between messages."""

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        return (STOP,)

    def render(self, messages: Several[Message], *, generation: bool = True) -> TokenArray:
        text = "\n".join(str(message["content"]) for message in messages)
        return self.encode(text + ("\n" if generation else ""))

    def bridge(self, tokens: TokenArray, messages: Several[Message]) -> TokenArray:
        return self.encode("\n" + "\n".join(str(message["content"]) for message in messages) + "\n")

    def parse(self, tokens: TokenArray) -> Parsed:
        complete = bool(len(tokens)) and int(tokens[-1]) == STOP
        text = self.decode(tokens[:-1] if complete else tokens)
        return Parsed({"role": "assistant", "content": text}, complete)

    def decode(self, tokens: TokenArray) -> str:
        return "".join(chr(token) for token in tokens.tolist())

    def encode(self, text: str) -> TokenArray:
        codes = [ord(character) for character in text]
        if wrong := [chr(code) for code in codes if not 0 < code < VOCABULARY]:
            raise ValueError(f"the toy model knows only ASCII, not {wrong[0]!r}")
        return np.array(codes, np.int32)
