"""A chat endpoint that answers what a test told it to: OpenAI's chat completions on this machine, no model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from miles_core.types.task import Message

Reply = str | Message
Replies = Iterable[Reply] | Callable[[Mapping[str, Any]], Reply]

TASK_NAME = "scripted chat"
"""Of the endpoint's own tasks: they notice that a client left a moment later, and are none of the client's."""


class ScriptedChat:
    """An endpoint for one test: `async with ScriptedChat(["4"]) as chat: … chat.base_url …`.

    replies  texts, or whole assistant messages (for tool calls), one a call in order; or a function of the request's
             body; the last one is repeated. None: "ok"

    `calls` keeps the body of every call, `keys` the bearer token or `x-api-key` that came with it. To misbehave:
    `answer_with(status)`, `hang()`. `open_calls` counts calls whose client still waits.
    """

    def __init__(self, replies: Replies | None = None) -> None:
        self.calls: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.open_calls = 0
        self._reply = _answering(["ok"] if replies is None else replies)
        self._status = 200
        self._hanging = False
        self._released = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    @property
    def base_url(self) -> str:
        """With `/v1` at its end, as clients expect it. Raises RuntimeError outside the `async with`."""
        if self._server is None:
            raise RuntimeError("the endpoint is open inside `async with ScriptedChat() as chat`")
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    def answer_with(self, status: int) -> None:
        """From now on every call is answered with this status and an error body; 200: as scripted."""
        self._status = status

    def hang(self, on: bool = True) -> None:
        """Answer nothing until `hang(False)`."""
        self._hanging = on
        if not on:
            self._released.set()
            self._released = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
            for client in self._clients:
                client.cancel()
            await asyncio.gather(*self._clients, return_exceptions=True)
            self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name(TASK_NAME)
        self._clients.add(task)
        try:
            while (request := await _read(reader)) is not None:
                method, path, headers, body = request
                self.open_calls += 1
                try:
                    status, answer = await self._answer(method, path, headers, body, reader)
                finally:
                    self.open_calls -= 1
                if status == 0:
                    break
                _write(writer, status, answer, bool(body.get("stream")) and status == 200)
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass  # the client left, or the endpoint is closed
        finally:
            self._clients.discard(task)
            writer.close()

    async def _answer(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: dict[str, Any],
        reader: asyncio.StreamReader,
    ) -> tuple[int, dict[str, Any]]:
        if path.endswith("/models"):
            return 200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]}
        if method != "POST" or not path.endswith("/chat/completions"):
            return 404, _error(f"nothing is served at {method} {path}")
        self.calls.append(body)
        self.keys.append(headers.get("authorization", "").removeprefix("Bearer ") or headers.get("x-api-key", ""))
        if self._hanging and not await self._until_released(reader):
            return 0, {}
        if self._status != 200:
            return self._status, _error("the scripted endpoint was told to fail")
        if not isinstance(body.get("messages"), list) or not body["messages"]:
            return 400, _error("messages is no list of messages")
        reply = self._reply(body)
        message = {"role": "assistant", "content": reply} if isinstance(reply, str) else dict(reply)
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        number = len(self.calls)
        facts = {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": 0, "model": "scripted"}
        return 200, {**facts, "choices": [choice], "usage": usage}

    async def _until_released(self, reader: asyncio.StreamReader) -> bool:
        """Whether the client is still there when the endpoint goes on."""
        released = asyncio.create_task(self._released.wait(), name=TASK_NAME)
        left = asyncio.create_task(reader.read(1), name=TASK_NAME)
        try:
            await asyncio.wait({released, left}, return_when=asyncio.FIRST_COMPLETED)
            return released.done()
        finally:
            for each in (released, left):
                each.cancel()
            await asyncio.gather(released, left, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str], dict[str, Any]] | None:
    """Method, path, headers in lower case and JSON body of the next request; None when the client closed."""
    first = (await reader.readline()).decode("latin-1").split()
    if len(first) < 2:
        return None
    headers: dict[str, str] = {}
    while line := (await reader.readline()).decode("latin-1").strip():
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding", "").lower() == "chunked":
        raw = await _chunks(reader)
    else:
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
    try:
        body = json.loads(raw) if raw else {}
    except ValueError:
        body = {}
    return first[0], first[1].partition("?")[0], headers, body if isinstance(body, dict) else {}


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    found = b""
    while size := int((await reader.readline()).strip() or b"0", 16):
        found += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return found


def _write(writer: asyncio.StreamWriter, status: int, answer: dict[str, Any], stream: bool) -> None:
    if stream:
        kind, body = "text/event-stream", _events(answer)
    else:
        kind, body = "application/json", json.dumps(answer).encode()
    head = f"HTTP/1.1 {status} Scripted\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


def _events(answer: dict[str, Any]) -> bytes:
    """The answer as a stream of one chunk."""
    choice = answer["choices"][0]
    facts = {**answer, "object": "chat.completion.chunk", "usage": None}
    delta = {"index": 0, "delta": choice["message"], "finish_reason": choice["finish_reason"]}
    return f"data: {json.dumps({**facts, 'choices': [delta]})}\n\ndata: [DONE]\n\n".encode()


def _error(text: str) -> dict[str, Any]:
    return {"error": {"message": text, "type": "scripted", "param": None, "code": "scripted"}}


def _answering(replies: Replies) -> Callable[[Mapping[str, Any]], Reply]:
    if callable(replies):
        return replies
    left: Iterator[Reply] = iter(replies)
    last: Reply = "ok"

    def following(_body: Mapping[str, Any]) -> Reply:
        nonlocal last
        last = next(left, last)
        return last

    return following
