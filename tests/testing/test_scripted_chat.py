"""The scripted chat endpoint, asked by the standard library's client over a real socket."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request

import pytest

from miles_core.testing import ScriptedChat


def post(url: str, body: dict, key: str = "k", seconds: float = 5.0) -> str:
    data = json.dumps(body).encode()
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=seconds) as answer:
        return answer.read().decode()


async def ask(chat: ScriptedChat, text: str = "hi", **more) -> str:
    body = {"model": "any", "messages": [{"role": "user", "content": text}], **more}
    return await asyncio.to_thread(post, chat.base_url + "/chat/completions", body)


async def test_it_answers_in_order_and_repeats_the_last():
    async with ScriptedChat(["one", {"role": "assistant", "content": "", "tool_calls": [{"id": "c"}]}]) as chat:
        answers = [json.loads(await ask(chat, str(n)))["choices"][0] for n in range(3)]
    assert answers[0]["message"] == {"role": "assistant", "content": "one"}
    assert [answer["finish_reason"] for answer in answers] == ["stop", "tool_calls", "tool_calls"]
    assert [call["messages"][0]["content"] for call in chat.calls] == ["0", "1", "2"]
    assert set(chat.keys) == {"k"}


async def test_a_function_answers_by_the_body():
    async with ScriptedChat(lambda body: body["messages"][0]["content"].upper()) as chat:
        assert json.loads(await ask(chat, "loud"))["choices"][0]["message"]["content"] == "LOUD"


async def test_it_streams_when_asked():
    async with ScriptedChat(["words"]) as chat:
        lines = [line for line in (await ask(chat, stream=True)).split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    assert json.loads(lines[0].removeprefix("data: "))["choices"][0]["delta"]["content"] == "words"


async def test_it_fails_and_hangs_as_told():
    async with ScriptedChat() as chat:
        chat.answer_with(500)
        with pytest.raises(urllib.error.HTTPError, match="500"):
            await ask(chat)
        chat.answer_with(200)
        chat.hang()
        waiting = asyncio.ensure_future(ask(chat))
        while not chat.open_calls:
            await asyncio.sleep(0.01)
        assert not waiting.done()
        chat.hang(False)
        assert "ok" in await waiting
        with pytest.raises(urllib.error.HTTPError, match="404"):
            await asyncio.to_thread(post, chat.base_url + "/embeddings", {})
    with pytest.raises(RuntimeError, match="async with"):
        _ = chat.base_url
