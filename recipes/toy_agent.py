"""An agent of one page: it plays a guessing game over a chat endpoint and says how well that went.

`run` is given an episode: the task, and the base URL and key of a chat endpoint. Any client that speaks OpenAI's chat
can talk to it; here it is OpenAI's own. The agent never sees a token. What it leaves behind is an `Outcome` with its
verdict. What is trained on is what the model sampled in its conversation, token for token: so it only ever adds to the
messages, and sends back what it received as it received it.
"""

from __future__ import annotations

from openai import AsyncOpenAI
from pydantic import Field

import miles_core
from miles_core import BuildContext, Episode, Outcome


class Guessing:
    """Asks for the answer, says "No." to a wrong one, and asks again. The verdict is higher the sooner it is right."""

    class Options(miles_core.Options):
        turns: int = Field(default=3, ge=1, description="guesses that the model has")

    def __init__(self, options: Options, context: BuildContext) -> None:
        self._turns = options.turns
        self._client = AsyncOpenAI(api_key="every episode has its own")

    async def run(self, episode: Episode) -> Outcome:
        client = self._client.with_options(base_url=episode.base_url, api_key=episode.api_key)
        messages = list(episode.task.messages)
        for turn in range(self._turns):
            completion = await client.chat.completions.create(model="policy", messages=messages)
            choice = completion.choices[0]
            if episode.task.answer in choice.message.content:
                return Outcome(reward=1.0 - turn / self._turns, metadata={"guesses": turn + 1})
            if choice.finish_reason == "length":
                break  # a turn that was cut cannot be continued
            messages += [choice.message.model_dump(), {"role": "user", "content": "No."}]
        return Outcome(reward=0.0)
