"""Checks of the kind `renderer`, and of the renderer that a `model` brings. See `contracts.model.Renderer`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from miles_core.testing.families.images import check_images
from miles_core.testing.kit.check import Grade, check, expect
from miles_core.testing.kit.rendering import Rendering, assistant, calling, rendering_of, tool, user
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.sequence import TokenArray

Trial = Callable[[ComponentSubject], None]


def both(grade: Grade, promise: str) -> Callable[[Trial], Trial]:
    """A check of renderers, and of models: theirs is held to the same."""

    def register(function: Trial) -> Trial:
        check("renderer", grade, promise)(function)
        check("model", grade, f"its renderer: {promise}")(function)
        return function

    return register


@both(Grade.SILVER, "tokens are int32 [n] inside the vocabulary, and so are the stop tokens")
def gives_tokens_of_the_vocabulary(subject: ComponentSubject) -> None:
    rendering = rendering_of(subject)
    renderer = rendering.renderer
    stops = renderer.stop_tokens
    expect(
        isinstance(stops, tuple) and stops and all(isinstance(t, int) and 0 <= t < rendering.vocabulary for t in stops),
        f"stop_tokens is {stops!r}, the vocabulary has {rendering.vocabulary} tokens",
        "make stop_tokens a property that gives a tuple of at least one token id",
    )
    conversation = [user("2+2="), assistant("4")]
    for what, tokens in (
        ("render(...)", renderer.render(conversation)),
        ("render(..., generation=False)", renderer.render(conversation, generation=False)),
        ("bridge(...)", renderer.bridge(rendering.sampled("4"), [user("3+3=")])),
        ('encode("4")', renderer.encode("4")),
        ('encode("")', renderer.encode("")),
    ):
        _check_tokens(what, tokens, rendering.vocabulary)


@both(Grade.GOLD, "decode(encode(text)) is the text, for every text that it takes")
def decodes_what_it_encoded(subject: ComponentSubject) -> None:
    rendering = rendering_of(subject)
    for text in rendering.texts():
        again = rendering.renderer.decode(rendering.renderer.encode(text))
        expect(
            again == text,
            f"encode({text!r}) decodes to {again!r}",
            "add no special tokens and normalise nothing in encode; raise ValueError for what has no tokens",
        )


@both(Grade.GOLD, "rendering only appends: a longer conversation begins with the tokens of the shorter one")
def renders_append_only(subject: ComponentSubject) -> None:
    rendering = rendering_of(subject)
    for messages in rendering.conversations():
        whole = rendering.renderer.render(messages, generation=False)
        for length in range(1, len(messages)):
            before, following = messages[:length], messages[length]
            if not rendering.expresses(before):
                continue
            _check_prefix(rendering, before, whole, generation=False)
            # an answer that begins with a space may be tokenized together with what stands before it
            if following["role"] == "assistant" and following["content"][:1].strip():
                _check_prefix(rendering, before, whole, generation=True)


@both(Grade.GOLD, "a bridge brings a finished turn to where rendering the whole conversation stands")
def bridges_to_the_next_turn(subject: ComponentSubject) -> None:
    rendering = rendering_of(subject)
    renderer = rendering.renderer
    question, following = [user("2+2=")], [user("3+3=")]
    wanted = renderer.render([*question, assistant("4"), *following])
    prompt = renderer.render(question)
    written = not set(renderer.stop_tokens).isdisjoint(wanted.tolist())
    for stop, title in ((True, "that ended with its stop token"), (False, "that was cut before its stop token")):
        turn = np.concatenate([prompt, rendering.sampled("4", stop=stop)])
        kept = turn.copy()
        bridge = renderer.bridge(turn, following)
        expect(np.array_equal(turn, kept), "bridge changed the tokens that it was given", "write into no input")
        if not written:  # its format has no stop tokens: only the sampled one stands between
            turn = turn[: len(turn) - stop]
        reached = np.concatenate([turn, bridge])
        expect(
            np.array_equal(reached, wanted),
            f"after a turn {title}, the bridge leads to {renderer.decode(reached)!r:.300}; the whole conversation is "
            f"rendered as {renderer.decode(wanted)!r:.300}",
            "append what the chat format writes between the sampled answer and the assistant's next token: close the "
            "turn when it was cut, add the messages, open the next turn",
        )


@both(Grade.GOLD, "parse reads back what was sampled, without special tokens, and says whether it ended by itself")
def parses_what_was_sampled(subject: ComponentSubject) -> None:
    rendering = rendering_of(subject)
    for text in (text for text in rendering.texts() if text == text.strip()):
        for stop in (True, False):
            parsed = rendering.renderer.parse(rendering.sampled(text, stop=stop))
            content, role = parsed.message.get("content"), parsed.message.get("role")
            expect(role == "assistant", f"parse gives the role {role!r}", "give a message of the role assistant")
            expect(
                (content or "") == text,
                f"the sampled text {text!r} is read as {content!r}",
                "decode the tokens before the stop token and leave special tokens out",
            )
            expect(
                parsed.complete is stop,
                f"complete is {parsed.complete!r} for an answer {'with' if stop else 'without'} a stop token",
                "complete says whether one of stop_tokens was sampled",
            )


@both(Grade.GOLD, "what the format cannot express is refused with ValueError, never dropped silently")
def refuses_what_it_cannot_express(subject: ComponentSubject) -> None:
    renderer = rendering_of(subject).renderer
    for title, message, trace in (
        ("the role 'nobody'", {"role": "nobody", "content": "4"}, "nobody"),
        ("a part of type 'smell'", {"role": "user", "content": [{"type": "smell", "smell": "x"}]}, None),
        ("a message without content", {"role": "user"}, None),
    ):
        try:
            tokens = renderer.render([message])
        except ValueError:
            continue
        except Exception as error:
            expect(False, f"{title} raised {type(error).__name__}: {error}", "raise ValueError that names what it is")
        shown = renderer.decode(tokens)
        expect(
            trace is not None and trace in shown,
            f"{title} is rendered as {shown!r:.200}",
            "raise ValueError for every role and part that the format has no words for",
        )


@both(Grade.GOLD, "tools are rendered append-only and calls read back as they were written; or any tool is refused")
def speaks_of_tools(subject: ComponentSubject) -> None:
    rendering = rendering_of(subject)
    renderer, tools, question = rendering.renderer, [tool()], [user("2+2=")]
    try:
        prompt = renderer.render(question, tools=tools)
    except ValueError:
        _refuses_tools(rendering)
        return
    expect(
        not np.array_equal(prompt, renderer.render(question)),
        f"a prompt with tools is rendered as one without: {renderer.decode(prompt)!r:.200}",
        "write the tools where the format has them, or raise ValueError when any are given",
    )
    conversation = [*question, calling("4"), {"role": "tool", "content": "5", "tool_call_id": "call-0"}, user("3+3=")]
    whole = renderer.render(conversation, tools=tools, generation=False)
    for length in (1, 2):  # what stands between two turns is rendered at once: some formats write it in one piece
        _check_prefix(rendering, conversation[:length], whole, generation=False, tools=tools)
    turn = renderer.render(conversation[:2], tools=tools, generation=False)
    said = _until_stop(turn[len(prompt) :], renderer.stop_tokens)
    calls = renderer.parse(said, tools=tools).message.get("tool_calls") or [{}]
    function = calls[0].get("function", {})
    expect(
        function.get("name") == "add" and json.loads(function.get("arguments") or "null") == {"text": "4"},
        f"the call {renderer.decode(said)!r:.200} is read as {calls!r:.200}",
        "parse gives `tool_calls: [{type: function, function: {name, arguments}}]`, with the arguments as JSON text",
    )
    reached = np.concatenate(
        [prompt, said, renderer.bridge(np.concatenate([prompt, said]), conversation[2:], tools=tools)]
    )
    wanted = renderer.render(conversation, tools=tools)
    expect(
        np.array_equal(reached, wanted),
        f"after a call, the bridge leads to {renderer.decode(reached)!r:.300}; the whole conversation is rendered as "
        f"{renderer.decode(wanted)!r:.300}",
        "append what the format writes between a call and what follows its result",
    )


@both(Grade.GOLD, "it is pure: the same from several threads at once, and each time")
def is_pure(subject: ComponentSubject) -> None:
    rendering = rendering_of(subject)
    conversations = list(rendering.conversations())

    def render(_: int) -> list[list[int]]:
        return [rendering.renderer.render(messages).tolist() for messages in conversations]

    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(render, range(8)))
    expect(all(result == results[0] for result in results), "two calls gave different tokens", "keep no state")


def _check_tokens(what: str, tokens: Any, vocabulary: int) -> None:
    expect(
        isinstance(tokens, np.ndarray) and tokens.dtype == np.int32 and tokens.ndim == 1,
        f"{what} gave {getattr(tokens, 'dtype', type(tokens).__name__)} {getattr(tokens, 'shape', '')}",
        "return np.asarray(ids, dtype=np.int32), also when there are none",
    )
    wrong = [token for token in tokens.tolist() if not 0 <= token < vocabulary]
    expect(
        not wrong, f"{what} gave the token {wrong[:1]}, the vocabulary has {vocabulary}", "render with its tokenizer"
    )


def _refuses_tools(rendering: Rendering) -> None:
    try:
        rendering.renderer.bridge(rendering.sampled("4"), [user("3+3=")], tools=[tool()])
    except ValueError:
        return
    expect(False, "render refuses tools and bridge drops them silently", "raise ValueError in `bridge` too")


def _until_stop(tokens: TokenArray, stops: tuple[int, ...]) -> TokenArray:
    """What a model would have sampled of a rendered turn."""
    ends = np.flatnonzero(np.isin(tokens, stops))
    return tokens[: ends[0] + 1] if len(ends) else tokens


def _check_prefix(
    rendering: Rendering, before: list[Any], whole: TokenArray, *, generation: bool, tools: Sequence[Any] = ()
) -> None:
    renderer = rendering.renderer
    shorter = renderer.render(before, tools=tools, generation=generation)
    expect(
        np.array_equal(whole[: len(shorter)], shorter),
        f"{len(before)} messages are {renderer.decode(shorter)!r:.200}; with the next ones they became "
        f"{renderer.decode(whole)!r:.300}",
        "render each message by itself, and leave out what depends on messages that follow (such as thoughts that a "
        "template removes from earlier turns): a session's tokens cannot be changed afterwards",
    )


@both(Grade.GOLD, "turns that show images only append, and each image is the file that was shown")
def shows_images(subject: ComponentSubject) -> None:
    for name, tally in check_images(rendering_of(subject).renderer, count=4).items():
        expect(
            not tally.failed,
            f"{name}: {tally.first}",
            "render_images and bridge_images give the tokens of render and bridge, and a span for each image in order; "
            "raise ValueError where the format takes none",
        )
