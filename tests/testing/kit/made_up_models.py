"""Models in the tiny Llama's shape, and what can be wrong with them. A module, so that another process imports it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from miles_core import ModelCard, ModelFiles, RequestError, cache_root
from miles_core.testing import CharRenderer, tiny_model

CARD = ModelCard("tiny", "LlamaForCausalLM", 256, 128, 16, 2, 6736, (0,), tied_embeddings=True)


class Tiny:
    """Good: written once, into its own folder."""

    card = CARD

    def __init__(self, options, context):
        self.folder = context.folder / "made-up-model"

    def describe(self):
        return self.card

    def materialise(self):
        if not self.folder.exists():
            tiny_model(self.folder)
            self.finish()
        return ModelFiles(self.folder, self.describe())

    def finish(self):
        pass

    def renderer(self):
        return CharRenderer()


class StopsOutside(Tiny):
    card = replace(CARD, stop_tokens=(128,))


class Weightless(Tiny):
    card = replace(CARD, parameters=0)


class Fetching(Tiny):
    """Needs its files to tell what it is."""

    def describe(self):
        if not self.folder.exists():
            raise RequestError("fetch the model first")
        return self.card


class WritesEarly(Tiny):
    def describe(self):
        cache_root().mkdir(parents=True, exist_ok=True)
        (cache_root() / "draft").write_text("")
        return self.card


class Heavy(Tiny):
    def describe(self):
        sys.modules["jax"] = sys  # as good as an import
        return self.card


class Miscounted(Tiny):
    card = replace(CARD, parameters=6735)


class Narrower(Tiny):
    card = replace(CARD, hidden=8)


class LongerContext(Tiny):
    card = replace(CARD, context=512)


class TwoCards(Tiny):
    def materialise(self):
        return replace(super().materialise(), card=replace(CARD, name="other"))


class NoTokenizer(Tiny):
    def finish(self):
        (self.folder / "tokenizer.json").unlink()


class NoConfig(Tiny):
    def finish(self):
        (self.folder / "config.json").unlink()


class Rewriting(Tiny):
    def materialise(self):
        files = super().materialise()
        config = json.loads((self.folder / "config.json").read_text())
        (self.folder / "config.json").write_text(json.dumps(config))
        return files


class Moving(Tiny):
    count = 0

    def materialise(self):
        Moving.count += 1
        folder = Path(f"{self.folder}-{Moving.count}")
        tiny_model(folder)
        return ModelFiles(folder, self.card)
