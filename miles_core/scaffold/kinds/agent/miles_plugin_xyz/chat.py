"""The chat endpoint of an episode, with the standard library alone.

Any client does: `openai.AsyncOpenAI(base_url=episode.base_url, api_key=episode.api_key)` takes the place of this file
where the package openai is installed.
"""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from miles_core import Episode, Message


@dataclass(frozen=True)
class Reply:
    """What the model said. `cut`: it ran into its token limit, and the conversation cannot go on."""

    message: Message
    cut: bool


class Chat:
    """Blocking calls in threads, `calls` of them at once, `seconds` long at most."""

    def __init__(self, calls: int, seconds: float) -> None:
        self._threads = ThreadPoolExecutor(calls, thread_name_prefix="chat")
        self._seconds = seconds
        self._direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    async def ask(self, episode: Episode, messages: Sequence[Message]) -> Reply:
        """The model's next message. Raises OSError when it does not come: the endpoint refused, or was too slow.

        A session remembers what was said: send every message again as it was sent and received, and add to the end.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._post, episode, list(messages))

    def _post(self, episode: Episode, messages: list[Message]) -> Reply:
        request = urllib.request.Request(
            f"{episode.base_url}/chat/completions",
            data=json.dumps({"messages": [dict(message) for message in messages]}).encode(),
            headers={"Authorization": f"Bearer {episode.api_key}", "Content-Type": "application/json"},
        )
        try:
            with self._direct.open(request, timeout=self._seconds) as response:
                choice = json.load(response)["choices"][0]
        except urllib.error.HTTPError as refusal:
            raise ConnectionError(f"the chat endpoint refused: {refusal.read().decode()}") from refusal
        return Reply(choice["message"], cut=choice["finish_reason"] == "length")
