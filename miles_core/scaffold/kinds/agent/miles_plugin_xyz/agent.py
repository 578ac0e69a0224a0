"""A guessing game, played by a model behind a chat endpoint."""

import asyncio

from miles_core import BuildContext, Episode, Message, Outcome

from miles_plugin_xyz.chat import ask
from miles_plugin_xyz.game import Game
from miles_plugin_xyz.options import XyzOptions


class XyzAgent:
    """Many episodes run at once, each as a task of its own. See `miles_core.Agent`."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._turns = options.turns

    async def run(self, episode: Episode) -> Outcome:
        """A lost game has the reward 0; one that is cancelled has none. An exception is a failed attempt."""
        playing = asyncio.create_task(self._play(episode))
        told_to_stop = asyncio.create_task(episode.cancelled.wait())
        try:
            await asyncio.wait({playing, told_to_stop}, return_when=asyncio.FIRST_COMPLETED)
            return playing.result() if playing.done() else Outcome()
        finally:
            for task in (playing, told_to_stop):
                task.cancel()
            await asyncio.gather(playing, told_to_stop, return_exceptions=True)

    async def _play(self, episode: Episode) -> Outcome:
        game = Game(episode.task.answer)
        messages: list[Message] = [*episode.task.messages]
        for turn in range(self._turns):
            reply = await ask(episode, messages)
            hint = game.guess(str(reply.message["content"]))
            if hint is None:
                return Outcome(1 - turn / self._turns, {"guesses": turn + 1})
            if reply.cut:
                break
            messages += [reply.message, {"role": "user", "content": hint}]
        return Outcome(0.0)
