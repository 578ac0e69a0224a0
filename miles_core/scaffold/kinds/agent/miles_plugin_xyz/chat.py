"""The chat endpoint of an episode, with the standard library alone: one call is one POST on a connection of its own.

Any client does: `openai.AsyncOpenAI(base_url=episode.base_url, api_key=episode.api_key)` takes the place of this file
where the package openai is installed.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from miles_core import Episode, Message


@dataclass(frozen=True)
class Reply:
    """What the model said. `cut`: it ran into its token limit, and the conversation cannot go on."""

    message: Message
    cut: bool


async def ask(episode: Episode, messages: Sequence[Message]) -> Reply:
    """The model's next message. Raises OSError when the endpoint refuses or the connection breaks.

    A session remembers what was said: send every message again as it was sent and received, and add to the end.
    Cancelling closes the connection, and the engine stops to work on the answer.
    """
    url = urlsplit(f"{episode.base_url}/chat/completions")
    body = json.dumps({"messages": [dict(message) for message in messages]}).encode()
    head = (
        f"POST {url.path} HTTP/1.1\r\nHost: {url.netloc}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
        f"Content-Type: application/json\r\nAuthorization: Bearer {episode.api_key}\r\n\r\n"
    )
    secure = url.scheme == "https"
    reader, writer = await asyncio.open_connection(
        url.hostname, url.port or (443 if secure else 80), ssl=secure or None
    )
    try:
        writer.write(head.encode() + body)
        status, answer = await _read(reader)
    finally:
        writer.close()
    if status != 200:
        raise ConnectionError(f"the chat endpoint answered {status}: {answer.decode()}")
    choice = json.loads(answer)["choices"][0]
    return Reply(choice["message"], cut=choice["finish_reason"] == "length")


async def _read(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body. Without a length, the body ends when the connection does."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = re.search(r"^content-length: *(\d+)", head, re.IGNORECASE | re.MULTILINE)
    body = await (reader.readexactly(int(length[1])) if length else reader.read())
    return int(head.split()[1]), body
