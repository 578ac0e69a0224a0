"""`miles session serve` as people use it: a process, the official clients, traces on disk, and an end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import anthropic
import openai
import pytest

from miles_core import Disposition
from miles_core.observe.trajectories import read_groups

ROOT = Path(__file__).parents[2]
SETTINGS = ("model.context=20000", "generator.sampling.max_new_tokens=3000", "engine.replicas=2")
HI = [{"role": "user", "content": "hi"}]


def command(*words: str) -> list[str]:
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    recipe = str(ROOT / "recipes/toy.yaml")
    return [sys.executable, "-m", "miles_core.cli.entry", "session", "serve", recipe, *settings, *words]


class Server:
    """A served toy model in a process of its own."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            command("--json", *words), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        said = self.process.stdout.readline()
        assert said, self.process.communicate()[1]
        self.facts = json.loads(said)
        self.root = self.facts["base_url"].removesuffix("/v1")

    def ask(self, method: str, path: str, body: dict | None = None) -> dict:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.root + path, data, method=method)
        request.add_header("Authorization", f"Bearer {self.facts['operator_key']}")
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def stop(self, with_signal: int = signal.SIGINT) -> tuple[int, str]:
        self.process.send_signal(with_signal)
        _, told = self.process.communicate(timeout=20)
        return self.process.returncode, told


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    served = Server("--traces", str(folder))
    served.traces = folder
    yield served
    if served.process.poll() is None:
        served.stop()


def in_turns(say, server, session) -> dict:
    """Two turns of a client, and the trace that they left."""
    messages = list(HI)
    for turn in range(2):
        messages += [say(messages), {"role": "user", "content": f"and {turn}?"}]
    collected = server.ask("DELETE", f"/sessions/{session['id']}")
    assert collected["turns"] == 2 and len(collected["sequences"]) == 1
    sequence = collected["sequences"][0]
    assert sum(sequence["sampled"]) == sum(span["stop"] - span["start"] for span in sequence["spans"])
    return collected


def test_openais_client_plain_and_streaming(server):
    session = server.ask("POST", "/sessions", {})
    client = openai.OpenAI(base_url=session["base_url"], api_key=session["api_key"], max_retries=0)

    def say(messages):
        if len(messages) == 1:
            return client.chat.completions.create(model="toy", messages=messages).choices[0].message.model_dump()
        usage = {"include_usage": True}
        stream = client.chat.completions.create(model="toy", messages=messages, stream=True, stream_options=usage)
        chunks = list(stream)
        assert chunks[-1].usage.completion_tokens > 0
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        return {"role": "assistant", "content": text}

    in_turns(say, server, session)


def test_openais_asynchronous_client_and_responses(server):
    session = server.ask("POST", "/sessions", {})

    async def talk():
        client = openai.AsyncOpenAI(base_url=session["base_url"], api_key=session["api_key"], max_retries=0)
        first = await client.chat.completions.create(model="toy", messages=HI)
        history = [*HI, first.choices[0].message.model_dump(), {"role": "user", "content": "more"}]
        async with client.responses.stream(model="toy", input=history) as stream:
            async for _ in stream:
                pass
            final = await stream.get_final_response()
        assert final.status == "completed"
        return (await client.models.list()).data[0].max_model_len

    assert asyncio.run(talk()) == 20000
    assert server.ask("DELETE", f"/sessions/{session['id']}")["turns"] == 2


def test_anthropics_client_plain_and_streaming(server):
    session = server.ask("POST", "/sessions", {})
    client = anthropic.Anthropic(base_url=session["anthropic_base_url"], api_key=session["api_key"], max_retries=0)

    def say(messages):
        if len(messages) == 1:
            said = client.messages.create(model="toy", max_tokens=3000, messages=messages)
        else:
            with client.messages.stream(model="toy", max_tokens=3000, messages=messages) as stream:
                text = "".join(stream.text_stream)
                said = stream.get_final_message()
            assert text == said.content[0].text
        return {"role": "assistant", "content": [block.model_dump() for block in said.content]}

    in_turns(say, server, session)


def test_anthropics_asynchronous_client(server):
    session = server.ask("POST", "/sessions", {"history": "branching", "temperature": 0.5})

    async def talk():
        root, key = session["anthropic_base_url"], session["api_key"]
        client = anthropic.AsyncAnthropic(base_url=root, api_key=key, max_retries=0)
        asked = [
            client.messages.create(model="toy", max_tokens=2000, messages=[{**HI[0], "content": str(n)}])
            for n in range(6)
        ]
        await asyncio.gather(*asked)
        async with client.messages.stream(model="toy", max_tokens=2000, messages=HI) as stream:
            await stream.get_final_message()

    asyncio.run(talk())
    collected = server.ask("DELETE", f"/sessions/{session['id']}")
    assert len(collected["sequences"]) == 7
    assert {span["temperature"] for s in collected["sequences"] for span in s["spans"]} == {0.5}


def test_a_client_that_can_set_nothing_but_a_header(server):
    key = server.facts["operator_key"]
    client = openai.OpenAI(base_url=server.facts["base_url"], api_key=key, default_headers={"X-Session-ID": "mine"})
    client.chat.completions.create(model="toy", messages=HI)
    assert server.ask("GET", "/sessions/mine")["turns"][0]["messages"][0] == HI[0]
    engines = {turn["engine"] for turn in server.ask("GET", "/sessions/mine")["turns"]}
    assert len(engines) == 1


def test_what_ended_is_on_disk_and_the_rest_follows_at_the_end(server):
    before = {group.task.id: group for _, group, _ in read_groups(server.traces)}
    session = server.ask("POST", "/sessions", {"name": "last", "metadata": {"run": 7}})
    client = openai.OpenAI(base_url=session["base_url"], api_key=session["api_key"])
    client.chat.completions.create(model="toy", messages=HI)
    collected = server.ask("GET", "/sessions/last/trajectory")
    code, told = server.stop(signal.SIGTERM)
    assert code == 0 and told.rstrip().endswith("closed"), told
    assert server.facts["operator_key"] not in told and session["api_key"] not in told
    after = {group.task.id: (group, found) for _, group, found in read_groups(server.traces)}
    group, found = after["last"]
    (trajectory,) = group.trajectories
    assert trajectory.sequences[0].tokens.tolist() == collected["sequences"][0]["tokens"]
    assert group.task.messages[0]["content"] == "hi" and trajectory.metadata["run"] == 7
    assert found == {"last": Disposition.BUFFERED} and "last" not in before and "mine" in after


def test_no_key_is_on_disk_or_in_the_log(tmp_path):
    served = Server("--traces", str(tmp_path))
    session = served.ask("POST", "/sessions")
    client = openai.OpenAI(base_url=session["base_url"], api_key=session["api_key"], max_retries=0)
    client.chat.completions.create(model="m", messages=HI, max_tokens=4)
    for wrong in ([{"role": "wizard", "content": "x"}], [{"role": "user", "content": "other"}]):
        with pytest.raises(openai.APIStatusError) as refused:
            client.chat.completions.create(model="m", messages=wrong, max_tokens=4)
        assert session["api_key"] not in str(refused.value)
    client.api_key = served.facts["operator_key"] + "x"
    with pytest.raises(openai.AuthenticationError) as refused:
        client.chat.completions.create(model="m", messages=HI)
    listed = json.dumps([served.ask("GET", "/sessions"), served.ask("GET", f"/sessions/{session['id']}")])
    _, log = served.stop()
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    for key in (session["api_key"], served.facts["operator_key"]):
        assert len(key) >= 32
        assert key not in log + listed + str(refused.value)
        assert not any(key.encode() in content for content in files)


def test_ctrl_c_leaves_no_process_behind_and_a_dead_engine_is_started_again():
    served = Server()
    children = workers(served.process.pid)
    assert len(children) == 2
    os.kill(children[0], signal.SIGKILL)
    end = time.monotonic() + 30
    while time.monotonic() < end and not set(workers(served.process.pid)) - set(children):
        time.sleep(0.05)
    code, told = served.stop()
    assert code == 0 and "is lost, 1 left" in told and "started again" in told
    end = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in children) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def workers(parent: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_its_limits_are_what_was_asked_for_and_told_by_help():
    told = subprocess.run(command("--help"), cwd=ROOT, capture_output=True, text=True, timeout=60).stdout
    limited = Server(
        "--sessions", "2", "--nodes", "1", "--body-bytes", "500", "--idle-seconds", "5", "--call-seconds", "60"
    )
    for option in ("--sessions", "--nodes", "--body-bytes", "--idle-seconds", "--call-seconds", "Example:"):
        assert option in told
    first, _ = (limited.ask("POST", "/sessions") for _ in range(2))
    assert refusal(limited, "POST", "/sessions") == (429, "too_many_sessions")
    url = f"/sessions/{first['id']}/v1/chat/completions"
    assert refusal(limited, "POST", url, {"messages": [{"role": "user", "content": "x" * 500}]}) == (
        413,
        "body_too_large",
    )
    limited.ask("POST", url, {"messages": HI, "max_tokens": 4})
    assert refusal(limited, "POST", url, {"messages": HI}) == (409, "session_full")
    until = time.monotonic() + 60
    while limited.ask("GET", "/sessions")["sessions"] and time.monotonic() < until:  # looking does not use a session
        time.sleep(0.2)
    assert refusal(limited, "GET", f"/sessions/{first['id']}") == (410, "session_gone")
    assert limited.ask("POST", "/sessions")["id"]  # there is room again
    assert limited.stop()[0] == 0


def refusal(server: Server, method: str, path: str, body: dict | None = None) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as refused:
        server.ask(method, path, body)
    return refused.value.code, json.load(refused.value)["error"]["code"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--set", "model=null"], "has no `model:`"),
        (["--set", "engine=null"], "has no `engine:`"),
        (["--set", "engine.speed=3"], "engine.speed"),
        (["--history", "forest"], "branching, linear"),
        (["--host", "203.0.113.7"], "cannot serve sessions at 203.0.113.7"),
        (["--traces", "/proc/nowhere"], "traces cannot be kept"),
        (["--sessions", "0", "--idle-seconds", "nan"], "sessions is 0, expected 1 or more"),
        (["--sessions", "0", "--idle-seconds", "nan"], "idle_seconds is nan"),
        (["--body-bytes", "many"], "--body-bytes"),
    ],
)
def test_a_wrong_request_is_told_with_code_2(words, what):
    found = subprocess.run(command(*words), cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert found.returncode == 2 and what in found.stderr, found.stderr
    assert not found.stdout
