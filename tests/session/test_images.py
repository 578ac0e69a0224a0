"""Turns with images through the session server, with the official clients: accepted, replayed, diverged, refused."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import anthropic
import openai
import pytest
from serving import call, check_against_log, client_of, served, user

from miles_core import Sampling, SessionRules
from miles_core.observe.images import ImageFolder
from miles_core.observe.trajectories import read_groups, write_groups
from miles_core.session.images import ImageRules
from miles_core.session.store import Limits
from miles_core.testing import (
    CharImageRenderer,
    ScriptedEngine,
    make_attempt,
    make_png,
    make_task,
)
from miles_core.types.trajectory import Disposition, Group, Trajectory

RED, BLUE = make_png(5, 3, seed=1), make_png(5, 3, seed=2)
MODEL = "tiny"


def url(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def chat_image(png: bytes, text: str = "what is it?") -> dict:
    parts = [{"type": "image_url", "image_url": {"url": url(png), "detail": "high"}}, {"type": "text", "text": text}]
    return {"role": "user", "content": parts}


def imaged(engine=None, **options):
    return served(engine or ScriptedEngine(images=True), CharImageRenderer(), **options)


def images_of(sequence) -> tuple:
    return tuple((span.start, span.stop, span.image.digest) for span in sequence.images)


async def test_an_image_goes_through_to_the_trajectory_on_disk(tmp_path):
    engine = ScriptedEngine(images=True)
    async with imaged(engine) as server:
        address = await server.open(make_attempt())
        client = client_of(address)
        messages = [chat_image(RED)]
        for png in (None, BLUE):
            if png is not None:
                messages.append(chat_image(png, "and this?"))
            said = await client.chat.completions.create(model=MODEL, messages=messages)
            messages.append(said.choices[0].message.model_dump(exclude_none=True))
        collected = await server.collect(address.api_key)
    (sequence,) = collected.sequences
    check_against_log(sequence, engine.log)
    assert images_of(sequence) == engine.log[-1].images
    assert [span.image.file for span in sequence.images] == [RED, BLUE]
    assert len(engine.log[0].images) == 1 and engine.log[0].images == engine.log[1].images[:1]
    made = (Trajectory(f"t{n}", "task", n, collected.sequences) for n in range(2))
    group = Group(replace(make_task(), prompt=(chat_image(RED),)), 0, 0, tuple(made))
    path = write_groups(tmp_path, "step-000000", [(group, dict.fromkeys(("t0", "t1"), Disposition.TRAINED))], step=0)
    assert len(list((tmp_path / "images").iterdir())) == 4  # two files, two pixel inputs: each once
    assert url(RED).encode() not in path.read_bytes()
    ((_, found, _),) = read_groups(tmp_path)
    for trajectory in found.trajectories:
        (again,) = trajectory.sequences
        assert images_of(again) == images_of(sequence)
        assert all(span.image.intact for span in again.images)
    assert found.task.prompt[0]["content"][0]["image_url"]["url"] == url(RED)
    ((_, bare, _),) = read_groups(tmp_path, pixels=False)
    assert images_of(bare.trajectories[0].sequences[0]) == images_of(sequence)
    folder, digest = ImageFolder(tmp_path), images_of(sequence)[0][2]
    assert folder.fault(digest) == ""
    next(tmp_path.glob("images/*.png")).write_bytes(make_png(1, 1))
    assert any("digest" in ImageFolder(tmp_path).fault(span.image.digest) for span in sequence.images)


async def test_every_dialect_says_the_same_image():
    engine = ScriptedEngine(answers=["seen"] * 3, images=True)
    async with imaged(engine) as server:
        chat = await server.open(make_attempt(id="a"))
        await client_of(chat).chat.completions.create(model=MODEL, messages=[chat_image(RED)])
        answers = await server.open(make_attempt(id="b"))
        parts = [{"type": "input_image", "image_url": url(RED)}, {"type": "input_text", "text": "what is it?"}]
        await client_of(answers).responses.create(model=MODEL, input=[{"role": "user", "content": parts}])
        messages = await server.open(make_attempt(id="c"))
        client = anthropic.AsyncAnthropic(
            base_url=messages.base_url.removesuffix("/v1"), api_key=messages.api_key, max_retries=0
        )
        source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(RED).decode()}
        blocks = [{"type": "image", "source": source}, {"type": "text", "text": "what is it?"}]
        await client.messages.create(model=MODEL, max_tokens=20, messages=[{"role": "user", "content": blocks}])
        first, second, third = engine.log
    assert first.prompt == second.prompt == third.prompt
    assert first.images == second.images == third.images
    assert len(first.images) == 1


async def test_an_image_of_a_tool_streams_through_anthropic():
    engine = ScriptedEngine(answers=['<call>look {"at": 1}</call>', "a dot"], images=True)
    async with imaged(engine) as server:
        address = await server.open(make_attempt(sampling=Sampling(max_new_tokens=40)))
        client = anthropic.AsyncAnthropic(
            base_url=address.base_url.removesuffix("/v1"), api_key=address.api_key, max_retries=0
        )
        tools = [{"name": "look", "input_schema": {"type": "object", "properties": {"at": {"type": "integer"}}}}]
        messages = [{"role": "user", "content": "look"}]
        asked = {"model": MODEL, "max_tokens": 40, "tools": tools}
        first = await client.messages.create(messages=messages, **asked)
        (block,) = first.content
        source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(RED).decode()}
        seen = {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "image", "source": source}]}
        messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [seen]}]
        async with client.messages.stream(messages=messages, **asked) as stream:
            assert await stream.get_final_text() == "a dot"
        (sequence,) = (await server.collect(address.api_key)).sequences
    check_against_log(sequence, engine.log)
    assert [span.image.file for span in sequence.images] == [RED]


async def test_the_same_bytes_match_however_they_are_spelt_and_others_diverge():
    async with imaged() as server:
        address = await server.open(make_attempt())
        client = client_of(address)
        said = (await client.chat.completions.create(model=MODEL, messages=[chat_image(RED)])).choices[0].message
        loose = base64.encodebytes(RED).decode().replace("+", "-").replace("/", "_").rstrip("=\n")
        again = chat_image(RED)
        again["content"][0] = {"type": "image_url", "image_url": f"data:application/octet-stream;base64,{loose}"}
        reply = {"role": "assistant", "content": said.content}
        await client.chat.completions.create(model=MODEL, messages=[again, reply, user("more")])
        with pytest.raises(openai.ConflictError) as raised:
            await client.chat.completions.create(model=MODEL, messages=[chat_image(BLUE), reply, user("more")])
    text = str(raised.value)
    assert "message 0 (user)" in text and "image/png 5x3 sha256:" in text
    assert base64.b64encode(RED).decode()[:40] not in text


BAD = [
    ("https://example.org/cat.png", "nothing is fetched"),
    ("file:///etc/passwd", "data:image/png;base64"),
    ("data:image/png,abc", "not in base64"),
    ("data:image/png;base64,@@@@", "base64"),
    (f"data:image/png;base64,{base64.b64encode(b'no image at all').decode()}", "no PNG"),
    (f"data:image/png;base64,{base64.b64encode(RED[:18]).decode()}", "cut or damaged"),
    (None, "expected text"),
]


@pytest.mark.parametrize(("given", "words"), BAD)
async def test_what_is_no_image_is_told_with_its_message(given, words):
    engine = ScriptedEngine(images=True)
    async with imaged(engine) as server:
        address = await server.open(make_attempt())
        content = [{"type": "image_url", "image_url": {"url": given}}]
        body = {"model": MODEL, "messages": [user("hello"), {"role": "user", "content": content}]}
        status, told, _ = await call(address, json=body)
        assert (status, engine.log) == (400, [])
        assert words in told["error"]["message"] and "message 1 (user)" in told["error"]["message"]
        await client_of(address).chat.completions.create(model=MODEL, messages=[user("still here")])


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        (ImageRules(count=1), "too_many_images"),
        (ImageRules(bytes=len(RED) - 1), "image_too_large"),
        (ImageRules(pixels=14), "image_too_large"),
        (ImageRules(refused="the engine 'a' takes no images"), "images_not_supported"),
    ],
)
async def test_bounds(rules, code):
    async with imaged(limits=Limits(images=rules)) as server:
        address = await server.open(make_attempt())
        body = {"model": MODEL, "messages": [chat_image(RED), chat_image(BLUE)]}
        status, told, _ = await call(address, json=body)
        assert (status, told["error"]["code"]) == (400, code)
        assert "(user)" in told["error"]["message"]


async def test_a_small_file_that_says_it_is_huge_is_never_decoded():
    bomb = make_png(1, 1)
    bomb = bomb[:16] + (60_000).to_bytes(4, "big") * 2 + bomb[24:]
    async with imaged() as server:
        address = await server.open(make_attempt())
        status, told, _ = await call(address, json={"messages": [chat_image(bomb)]})
    assert status == 400 and "60000x60000" in told["error"]["message"]


async def test_a_format_without_images_says_so():
    async with served() as server:
        address = await server.open(make_attempt())
        status, told, _ = await call(address, json={"messages": [chat_image(RED)]})
        assert status == 400 and "CharRenderer takes none" in told["error"]["message"]


async def test_branches_share_an_image_and_learn_each_token_once():
    engine = ScriptedEngine(images=True)
    async with imaged(engine) as server:
        address = await server.open(make_attempt(), SessionRules("branching"))
        client = client_of(address)
        said = (await client.chat.completions.create(model=MODEL, messages=[chat_image(RED)])).choices[0].message
        root = [chat_image(RED), {"role": "assistant", "content": said.content}]
        for follow in (user("a"), chat_image(BLUE, "b")):
            await client.chat.completions.create(model=MODEL, messages=[*root, follow])
        sequences = (await server.collect(address.api_key)).sequences
    assert [[span.image.file for span in sequence.images] for sequence in sequences] == [[RED], [RED, BLUE]]
    assert [images_of(sequence) for sequence in sequences] == [each.images for each in engine.log[1:]]
    assert sum(sequence.sampled_count for sequence in sequences) == sum(len(each.tokens) for each in engine.log)


async def test_what_people_see_of_a_session_has_facts_in_place_of_pixels():
    async with imaged() as server:
        address = await server.open(make_attempt())
        await client_of(address).chat.completions.create(model=MODEL, messages=[chat_image(RED)])
        seen = await server.inspect(address.api_key)
    part = seen["turns"][0]["messages"][0]["content"][0]
    assert (part["type"], part["width"], part["height"], part["bytes"]) == ("image", 5, 3, len(RED))
    assert base64.b64encode(RED).decode() not in json.dumps(seen)
