"""Text to tokens and back, and conversations that only ever grow."""

import numpy as np
import pytest
from miles_core import BuildContext, Message

from miles_plugin_xyz.options import XyzOptions
from miles_plugin_xyz.renderer import XyzRenderer

QUESTION: Message = {"role": "user", "content": "1+2="}
ANSWER: Message = {"role": "assistant", "content": "3"}
NEXT: Message = {"role": "user", "content": "sure?"}


def made() -> XyzRenderer:
    options = XyzOptions()
    return XyzRenderer(options, BuildContext(seed=1, name="renderer"))


def test_a_conversation_as_text() -> None:
    tokens = made().render([QUESTION, ANSWER, NEXT])
    assert made().decode(tokens) == "user: 1+2=\nassistant: 3\x00\nuser: sure?\nassistant: "


def test_what_was_rendered_is_a_prefix_of_what_follows() -> None:
    renderer = made()
    asked = renderer.render([QUESTION])
    sampled = np.append(renderer.encode("3"), renderer.stop_tokens).astype(np.int32)
    turn = np.concatenate([asked, sampled])
    whole = np.concatenate([turn, renderer.bridge(turn, [NEXT])])
    assert whole.tolist() == renderer.render([QUESTION, ANSWER, NEXT]).tolist()


@pytest.mark.parametrize(("text", "complete"), [("3\x00", True), ("3", False)])
def test_parsing_leaves_the_stop_token_out(text: str, complete: bool) -> None:
    parsed = made().parse(np.array([ord(character) for character in text], np.int32))
    assert (parsed.message, parsed.complete) == (ANSWER, complete)


def test_a_turn_that_was_cut_is_ended() -> None:
    cut = made().render([QUESTION])
    assert made().decode(made().bridge(cut, [NEXT])).startswith("\x00\nuser: sure?")


@pytest.mark.parametrize("message", [{"role": "robot", "content": "x"}, {"role": "user", "content": "é"}])
def test_what_has_no_tokens_is_refused(message: Message) -> None:
    with pytest.raises(ValueError, match=r"expected text of one of|only ASCII"):
        made().render([message])


def test_tools_are_refused() -> None:
    with pytest.raises(ValueError, match="no tools"):
        made().render([QUESTION], tools=[{"type": "function", "function": {"name": "f"}}])
