"""Broken models and renderers: each check catches what it is for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bench_trying import assert_caught, assert_passes
from trying import find_check, try_check

from miles_core.testing import CharImageRenderer, CharRenderer, CharToolRenderer
from miles_core.testing.kit.check import CheckResult
from miles_core.testing.kit.run import all_checks

BROKEN_MODELS = [
    ("has-a-whole-card", "StopsOutside"),
    ("has-a-whole-card", "Weightless"),
    ("describes-itself-from-configuration", "Fetching"),
    ("describes-itself-from-configuration", "WritesEarly"),
    ("describes-itself-from-configuration", "Heavy"),
    ("materialises-what-it-describes", "Miscounted"),
    ("materialises-what-it-describes", "Narrower"),
    ("materialises-what-it-describes", "LongerContext"),
    ("materialises-what-it-describes", "TwoCards"),
    ("materialises-what-it-describes", "NoTokenizer"),
    ("materialises-what-it-describes", "NoConfig"),
    ("materialises-once", "Rewriting"),
    ("materialises-once", "Moving"),
]


class Chars(CharRenderer):
    """Good."""

    def __init__(self, options, context):
        pass


class Calling(CharToolRenderer):
    """Good, with tools."""

    def __init__(self, options, context):
        pass


class WideTokens(Chars):
    def encode(self, text):
        return super().encode(text).astype(np.int64)


class StopsOutside(Chars):
    stop_tokens = (999,)


class NoStops(Chars):
    stop_tokens = ()


class Stripping(Chars):
    def encode(self, text):
        return super().encode(text.strip())


class Lossy(Chars):
    def decode(self, tokens):
        return super().decode(tokens).replace("\n", " ")


class Thoughtless(Chars):
    """As templates that remove an earlier turn's thoughts."""

    def render(self, messages, *, tools=(), generation=True):
        last = len(messages) - 1
        kept = [
            m if place == last or m["role"] != "assistant" else {**m, "content": ""} for place, m in enumerate(messages)
        ]
        return super().render(kept, tools=tools, generation=generation)


class Numbering(Chars):
    """Begins with how many messages there are."""

    def render(self, messages, *, tools=(), generation=True):
        return np.concatenate([np.array([48 + len(messages)], np.int32), super().render(messages, tools=tools)])


class LeavesTurnsOpen(Chars):
    def bridge(self, tokens, messages, *, tools=()):
        return super().bridge(np.array([0], np.int32), messages, tools=tools)


class StopsTwice(Chars):
    def bridge(self, tokens, messages, *, tools=()):
        return super().bridge(tokens[:0], messages, tools=tools)


class NoNextTurn(Chars):
    def bridge(self, tokens, messages, *, tools=()):
        return super().bridge(tokens, messages, tools=tools)[:-1]


class Overwriting(Chars):
    def bridge(self, tokens, messages, *, tools=()):
        bridge = super().bridge(tokens, messages, tools=tools)
        tokens[-1] = 0
        return bridge


class KeepsTheStop(Chars):
    def parse(self, tokens, *, tools=()):
        parsed = super().parse(tokens, tools=tools)
        return replace(parsed, message={"role": "assistant", "content": self.decode(tokens)})


class AlwaysComplete(Chars):
    def parse(self, tokens, *, tools=()):
        return replace(super().parse(tokens, tools=tools), complete=True)


class Users(Chars):
    def parse(self, tokens, *, tools=()):
        parsed = super().parse(tokens, tools=tools)
        return replace(parsed, message={**parsed.message, "role": "user"})


class AnyRole(Chars):
    def _line(self, message):
        return super()._line({**message, "role": "user"})


class AnyPart(Chars):
    def _line(self, message):
        return super()._line({**message, "content": str(message.get("content"))})


class Stateful(Chars):
    calls = 0

    def render(self, messages, *, tools=(), generation=True):
        Stateful.calls += 1
        return np.append(super().render(messages, tools=tools), np.int32(Stateful.calls % 100)).astype(np.int32)


class ForgetsTools(Calling):
    def render(self, messages, *, tools=(), generation=True):
        return super().render(messages, generation=generation)


class RefusesHalfOfIt(Chars):
    """Its prompts refuse tools, its bridges drop them."""

    def bridge(self, tokens, messages, *, tools=()):
        return super().bridge(tokens, messages)


class ReadsNoCalls(Calling):
    def parse(self, tokens, *, tools=()):
        parsed = super().parse(tokens, tools=tools)
        return replace(parsed, message={"role": "assistant", "content": parsed.message["content"]})


class TellsToolsAgain(Calling):
    """Writes the tools before every turn."""

    def bridge(self, tokens, messages, *, tools=()):
        head = super().bridge(tokens, ())
        return np.concatenate([head, self.render(messages, tools=tools)])


class Seeing(CharImageRenderer):
    """Good, with images."""

    def __init__(self, options, context):
        pass


class Blind(Seeing):
    def render_images(self, messages, *, tools=(), generation=True):
        return replace(super().render_images(messages, tools=tools, generation=generation), images=())


class Shortsighted(Seeing):
    def bridge_images(self, tokens, messages, *, tools=()):
        return replace(super().bridge_images(tokens, messages, tools=tools), images=())


BROKEN_RENDERERS = [
    ("gives-tokens-of-the-vocabulary", WideTokens),
    ("gives-tokens-of-the-vocabulary", StopsOutside),
    ("gives-tokens-of-the-vocabulary", NoStops),
    ("decodes-what-it-encoded", Stripping),
    ("decodes-what-it-encoded", Lossy),
    ("renders-append-only", Thoughtless),
    ("renders-append-only", Numbering),
    ("bridges-to-the-next-turn", LeavesTurnsOpen),
    ("bridges-to-the-next-turn", StopsTwice),
    ("bridges-to-the-next-turn", NoNextTurn),
    ("bridges-to-the-next-turn", Overwriting),
    ("parses-what-was-sampled", KeepsTheStop),
    ("parses-what-was-sampled", AlwaysComplete),
    ("parses-what-was-sampled", Users),
    ("refuses-what-it-cannot-express", AnyRole),
    ("refuses-what-it-cannot-express", AnyPart),
    ("speaks-of-tools", ForgetsTools),
    ("speaks-of-tools", RefusesHalfOfIt),
    ("speaks-of-tools", ReadsNoCalls),
    ("speaks-of-tools", TellsToolsAgain),
    ("shows-images", Blind),
    ("shows-images", Shortsighted),
    ("is-pure", Stateful),
]


@pytest.mark.parametrize(("name", "broken"), BROKEN_MODELS)
def test_broken_models(name, broken):
    assert_caught(try_check(f"model/{name}", f"made_up_models:{broken}"))


@pytest.mark.parametrize(("name", "broken"), BROKEN_RENDERERS)
def test_broken_renderers(name, broken):
    assert_caught(try_check(f"renderer/{name}", broken))


@pytest.mark.parametrize(
    ("kind", "good"),
    [("model", "made_up_models:Tiny"), ("renderer", Chars), ("renderer", Calling), ("renderer", Seeing)],
)
def test_a_good_one_passes(kind, good):
    for each in all_checks():
        if each.kind == kind:
            assert_passes(try_check(each.id, good))


def test_a_models_renderer_is_held_to_the_same():
    names = {each.id.partition("/")[2] for each in all_checks() if each.kind == "renderer"}
    assert names <= {each.id.partition("/")[2] for each in all_checks() if each.kind == "model"}
    assert find_check("model/is-pure").promise.startswith("its renderer: ")


def test_what_would_have_to_be_fetched_is_skipped_with_the_reason():
    import socket

    class Remote(Chars):
        def describe(self):
            raise NotImplementedError

        def materialise(self):
            socket.create_connection(("192.0.2.1", 80), timeout=1)

    finding = try_check("model/materialises-once", Remote)
    assert finding.result is CheckResult.SKIPPED and "network" in finding.detail
