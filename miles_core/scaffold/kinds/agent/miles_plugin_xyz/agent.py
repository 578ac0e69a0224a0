"""A guessing game, played by a model behind a chat endpoint."""

from miles_core import BuildContext, Episode, Message, Outcome

from miles_plugin_xyz.chat import Chat
from miles_plugin_xyz.game import Game
from miles_plugin_xyz.options import XyzOptions


class XyzAgent:
    """Many episodes run at once, each as a task of its own. See `miles_core.Agent`."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._options = options
        self._chat = Chat(options.calls, options.seconds)

    async def run(self, episode: Episode) -> Outcome:
        """A lost game has the reward 0. An exception is a failed attempt: it has no reward, and is not learned from."""
        game = Game(episode.task.answer)
        messages: list[Message] = [*episode.task.messages]
        for turn in range(self._options.turns):
            if episode.cancelled.is_set():
                break
            reply = await self._chat.ask(episode, messages)
            hint = game.guess(str(reply.message["content"]))
            if hint is None:
                return Outcome(1 - turn / self._options.turns, {"guesses": turn + 1})
            if reply.cut:
                break
            messages += [reply.message, {"role": "user", "content": hint}]
        return Outcome(0.0)
