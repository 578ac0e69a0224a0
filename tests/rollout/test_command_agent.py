"""The `command` agent: real processes against a real session."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from miles_core import RequestError
from miles_core.rollout.command_agent import CommandAgent, CommandOptions, ProgramFailed
from miles_core.testing import ScriptedEngine, chat_episode, make_task

FAKE = ("python", "-m", "miles_core.testing.fakes.asking_program")


def program(text: str, **options) -> CommandAgent:
    return CommandAgent(CommandOptions(run=("python", "-c", text), **options))


async def run(agent, answers=("7",), **options):
    async with chat_episode(answers, task=make_task("Which digit?", answer="7"), **options) as episode:
        return await agent.run(episode)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


async def gone(pid: int) -> bool:
    end = time.monotonic() + 5
    while alive(pid) and time.monotonic() < end:
        await asyncio.sleep(0.01)
    return not alive(pid)


async def test_a_program_asks_and_says_its_verdict():
    engine = ScriptedEngine(["7"])
    outcome = await run(CommandAgent(CommandOptions(run=FAKE)), engine)
    assert (outcome.reward, outcome.metadata) == (1.0, {"said": "7"})
    assert len(engine.log) == 1


async def test_what_a_program_is_given():
    text = (
        "import json, os, sys; given = json.load(sys.stdin); names = ('MILES_', 'OPENAI_', 'ANTHROPIC_', 'NO_PROXY');"
        "same = given == json.load(open(os.environ['MILES_TASK']));"
        "print('noise'); print(json.dumps({'reward': None, 'task': given, 'same': same, 'own': os.environ.get('OWN'),"
        "'folder': os.getcwd(), 'env': {k: v for k, v in os.environ.items() if k.startswith(names)}}))"
    )
    async with chat_episode(task=make_task("2+2=", id="sum", answer="4")) as episode:
        outcome = await program(text, environment={"OWN": "x"}, folder=Path("/")).run(episode)
    said, env = outcome.metadata, outcome.metadata["env"]
    assert outcome.reward is None and said["same"] and (said["own"], said["folder"]) == ("x", "/")
    assert said["task"] == json.loads(json.dumps(episode.task.to_data()))
    assert env["MILES_BASE_URL"] == env["OPENAI_BASE_URL"] == episode.base_url == env["ANTHROPIC_BASE_URL"] + "/v1"
    assert {env[f"{each}_API_KEY"] for each in ("MILES", "OPENAI", "ANTHROPIC")} == {episode.api_key}
    assert "127.0.0.1" in env["NO_PROXY"] and "ANTHROPIC_AUTH_TOKEN" not in env


@pytest.mark.parametrize(
    ("printed", "reward"),
    [
        ("", None),
        ("hello", None),
        ("[1]", None),
        ('{"reward": 2}', 2.0),
        ('{"reward": 1}\n\n', 1.0),
        ('{"a": 1}', None),
        ('{"reward": 3, "said": "a\u2028b\x85c"}', 3.0),
        ("x" * 70_000 + '\n{"reward": 4}', 4.0),
    ],
)
async def test_the_last_line_is_the_verdict(printed, reward):
    outcome = await run(program(f"print({printed!r})"))
    assert outcome.reward == reward


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import sys; print('{\"reward\": 1}'); sys.exit('the shell is gone')", r"exited with 1: the shell is gone"),
        ("import os; os.abort()", "ended by SIGABRT"),
        ('print(\'{"reward": "high"}\')', "the reward 'high', expected a number"),
        ('print(\'{"reward": 1, "log": "\' + "x" * 70_000 + \'"}\')', "longer than 65536 bytes"),
        ("for i in range(30): print(i, file=__import__('sys').stderr)\nraise SystemExit(3)", "exited with 3: 20\n21"),
    ],
)
async def test_a_program_that_fails_is_a_failed_attempt(text, why):
    with pytest.raises(ProgramFailed, match=why):
        await run(program(text))


SLEEPS = (
    "import subprocess, sys, time; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
    "open({!r}, 'w').write(str(child.pid)); {}; time.sleep(60)"
)


async def written(file: Path) -> int:
    end = time.monotonic() + 10
    while not (file.exists() and file.read_text()) and time.monotonic() < end:
        await asyncio.sleep(0.01)
    return int(file.read_text())


@pytest.mark.parametrize("way", ["told", "cancelled", "seconds"])
async def test_a_program_is_ended_with_all_that_it_started(way, tmp_path):
    file = tmp_path / "pid"
    agent = program(SLEEPS.format(str(file), "pass"), seconds=1.0 if way == "seconds" else None)
    async with chat_episode() as episode:
        running = asyncio.create_task(agent.run(episode))
        child = await written(file)
        assert alive(child)
        if way == "told":
            episode.cancelled.set()
        if way == "cancelled":
            running.cancel()
        why = {"told": "SIGTERM, after it was told to stop", "seconds": "SIGTERM, after 1 seconds"}.get(way)
        with pytest.raises(asyncio.CancelledError if way == "cancelled" else ProgramFailed, match=why):
            await asyncio.wait_for(running, 5)
        assert await gone(child)


async def test_a_program_that_does_not_listen_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("miles_core.rollout.command_agent.TERM_SECONDS", 0.1)
    file = tmp_path / "pid"
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    agent = program(SLEEPS.format(str(file), deaf))
    async with chat_episode() as episode:
        running = asyncio.create_task(agent.run(episode))
        child = await written(file)
        await asyncio.sleep(0.1)
        episode.cancelled.set()
        with pytest.raises(ProgramFailed, match="SIGKILL"):
            await asyncio.wait_for(running, 5)
        assert await gone(child)


async def test_a_program_that_was_told_may_still_say_its_verdict(tmp_path):
    file = tmp_path / "ready"
    text = (
        "import signal, sys, time\n"
        "def end(*_): print('{\"reward\": 0.5}'); sys.exit(0)\n"
        f"signal.signal(signal.SIGTERM, end); open({str(file)!r}, 'w').write('1'); time.sleep(60)"
    )
    async with chat_episode() as episode:
        running = asyncio.create_task(program(text).run(episode))
        await written(file)
        episode.cancelled.set()
        assert (await asyncio.wait_for(running, 5)).reward == 0.5


async def test_a_descendant_that_lives_on_holds_nobody_up(tmp_path):
    file = tmp_path / "pid"
    text = SLEEPS.format(str(file), "sys.exit(0)")
    started = time.monotonic()
    await run(program(text))
    assert time.monotonic() - started < 10
    assert await gone(int(file.read_text()))


async def test_so_many_at_once(tmp_path):
    text = (
        f"import os, time; folder = {str(tmp_path)!r}; name = os.path.join(folder, str(os.getpid()));"
        "open(name, 'w').close(); print('{\"reward\": %d}' % len(os.listdir(folder))); time.sleep(0.1); os.remove(name)"
    )
    agent = program(text, concurrent=2)
    async with chat_episode() as episode:
        outcomes = await asyncio.gather(*(agent.run(replace(episode)) for _ in range(6)))
    assert 1 <= max(outcome.reward for outcome in outcomes) <= 2


def test_no_such_program_is_told_before_anything_runs():
    with pytest.raises(RequestError, match="no program 'no-such-thing'"):
        CommandAgent(CommandOptions(run=("no-such-thing",)))
    with pytest.raises(RequestError, match="no folder"):
        program("pass", folder=Path("/no/such/folder"))
    assert CommandAgent(CommandOptions(run=("python",)))._program == (sys.executable,)
