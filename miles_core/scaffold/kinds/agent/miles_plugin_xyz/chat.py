"""The chat endpoint of an episode, with the standard library alone.

Any client does: `openai.AsyncOpenAI(base_url=episode.base_url, api_key=episode.api_key)` takes the place of this file
where the package openai is installed.
"""

import asyncio
import json
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from miles_core import Episode, Message


class Chat:
    """Blocking calls in threads, `calls` of them at once, `seconds` long at most."""

    def __init__(self, calls: int, seconds: float) -> None:
        self._threads = ThreadPoolExecutor(calls, thread_name_prefix="chat")
        self._seconds = seconds
        self._direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    async def ask(self, episode: Episode, messages: Sequence[Message]) -> Message:
        """The model's next message. Raises OSError when it does not come: the endpoint refused, or was too slow."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._post, episode, list(messages))

    def _post(self, episode: Episode, messages: list[Message]) -> Message:
        request = urllib.request.Request(
            f"{episode.base_url}/chat/completions",
            data=json.dumps({"messages": [dict(message) for message in messages]}).encode(),
            headers={"Authorization": f"Bearer {episode.api_key}", "Content-Type": "application/json"},
        )
        with self._direct.open(request, timeout=self._seconds) as response:
            message: Message = json.load(response)["choices"][0]["message"]
        return message
