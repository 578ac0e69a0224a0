"""Whole games against a real chat endpoint, behind which an engine says what the test told it to."""

import asyncio

import pytest
from miles_core import BuildContext, Outcome
from miles_core.testing import chat_episode, make_task

from miles_plugin_xyz.agent import XyzAgent
from miles_plugin_xyz.game import Game
from miles_plugin_xyz.options import XyzOptions


def played(guesses: list[str], secret: str = "7", cancelled: bool = False) -> Outcome:
    async def story() -> Outcome:
        options = XyzOptions(turns=4)
        agent = XyzAgent(options, BuildContext(seed=1, name="agent"))
        async with chat_episode(guesses, task=make_task("Which digit?", answer=secret)) as episode:
            if cancelled:
                episode.cancelled.set()
            return await agent.run(episode)

    return asyncio.run(story())


@pytest.mark.parametrize(
    ("guesses", "reward"),
    [(["7"], 1.0), (["3", "it is 7"], 0.75), (["1", "2", "3", "7"], 0.25), (["1", "2", "3", "4"], 0.0)],
)
def test_the_sooner_the_better(guesses: list[str], reward: float) -> None:
    assert played(guesses).reward == reward


def test_an_answer_that_was_cut_ends_the_game() -> None:
    assert played(["3" * 100, "7"]).reward == 0.0


def test_hints() -> None:
    game = Game("7")
    told = [game.guess(text) for text in ("3", "9", "dunno", "seven? 7!")]
    assert told == ["Higher.", "Lower.", "Name a number.", None]


def test_a_task_without_a_number_is_a_failed_attempt() -> None:
    with pytest.raises(ValueError, match="expected a task whose answer is a whole number"):
        played(["7"], secret="seven")


def test_a_cancelled_game_has_no_verdict() -> None:
    assert played(["7"], cancelled=True).reward is None
