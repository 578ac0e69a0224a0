"""What a session costs: a scripted engine behind the session server, and behind a bare proxy, in one run.

    python benchmarks/session.py [--quick] [--json] [--record FILE]

Both sides are served by one child process, on two ports of one event loop, over one scripted engine that answers with
the same 32 tokens. The bare proxy reads the body, asks the engine with tokens that it has ready, and writes an answer
of the same shape; the session server reads messages, finds their place in the tree, bridges the new ones into tokens,
keeps what was sampled, and answers. Calls alternate, so a busy machine slows both alike; what is added is the
difference of the percentiles.

    latency   one client in a conversation of 20 turns after the other; then 64 at a time
    cpu       user + system time that the serving process spends on one of those calls: it hardly depends on what else
              the machine does, as latency does
    work      tokens that the renderer made at turn t of one conversation, and the length of its history
    alive     1 000 sessions open at once, each asked twice, and all of them collected
    memory    bytes that a session keeps for each token of its conversation, messages included (tracemalloc)
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
import tracemalloc
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp
import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse

from miles_core import GenerateRequest, NoiseKey, RealClock, Sampling
from miles_core.session.call import ChatRequest
from miles_core.session.server import SessionServer
from miles_core.session.store import SessionStore
from miles_core.testing import CharRenderer, ScriptedEngine, make_attempt

ANSWER = "abcdefgh" * 4
QUESTION = "What comes after this, and why does it? " * 3
TURNS = 20
CONTEXT = 10_000_000
SAMPLING = Sampling(max_new_tokens=64, stop_tokens=(0,))
AIM_MS = 2.0


class Forgetful(ScriptedEngine):
    """Keeps no log: thousands of turns would be in it."""

    async def generate(self, request):
        result = await super().generate(request)
        self.log.clear()
        return result


def answering(text: str):
    """The same answer to everything."""
    return lambda _request: text


class Counting(CharRenderer):
    """Counts the tokens that it makes of messages."""

    made = 0

    def render(self, messages, **options):
        tokens = super().render(messages, **options)
        self.made += len(tokens)
        return tokens


@dataclass
class Line:
    """One row of the table; `ok` is None where there is no aim."""

    what: str
    value: float
    unit: str
    aim: str = ""
    ok: bool | None = None


# The served side


def bare_proxy(engine: ScriptedEngine):
    """The same route without a session."""
    prompt = np.full(2000, 65, np.int32)
    request = GenerateRequest("bare", prompt, SAMPLING, NoiseKey(1, "bench", "t", 0, 0), "bare")

    async def app(scope, receive, send) -> None:
        await Request(scope, receive).json()
        result = await engine.generate(request)
        text = "".join(map(chr, result.tokens[:-1].tolist()))
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 2000, "completion_tokens": len(result.tokens), "total_tokens": 2032}
        body = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
        await JSONResponse(body)(scope, receive, send)

    return app


async def serve_both() -> None:
    engine = Forgetful(answering(ANSWER), context=CONTEXT)
    servers = [
        SessionServer(engine, CharRenderer(), RealClock(), model="m", context=CONTEXT),
        SessionServer(engine, CharRenderer(), RealClock(), model="m", context=CONTEXT),
    ]
    servers[1]._app = bare_proxy(engine)  # the same server around another application
    operator = servers[0].operated(SAMPLING)
    for server in servers:
        await server.start()
    facts = {"session": servers[0].base_url, "bare": servers[1].base_url, "key": operator.key}
    print(json.dumps(facts), flush=True)
    await asyncio.Event().wait()


# The client side


class Clients:
    """Talks to both sides."""

    def __init__(self, http: aiohttp.ClientSession, facts: dict[str, str]) -> None:
        self.http = http
        self.facts = facts

    async def operator(self, method: str, path: str) -> dict:
        root = self.facts["session"].removesuffix("/v1")
        headers = {"Authorization": f"Bearer {self.facts['key']}"}
        async with self.http.request(method, root + path, headers=headers) as answer:
            assert answer.status < 300, await answer.text()
            return await answer.json()

    async def call(self, url: str, key: str, messages: list) -> tuple[float, dict]:
        """Seconds, and the assistant's message."""
        begun = time.perf_counter()
        headers = {"Authorization": f"Bearer {key}"}
        body = {"model": "m", "messages": messages}
        async with self.http.post(f"{url}/chat/completions", json=body, headers=headers) as answer:
            told = await answer.json()
        assert answer.status == 200, told
        return time.perf_counter() - begun, told["choices"][0]["message"]

    async def one_sided(self, bare: bool, conversations: int) -> int:
        """Whole conversations with one side alone; how many calls that was."""
        for _ in range(conversations):
            session = await self.operator("POST", "/sessions")
            url, key = (self.facts["bare"], "none") if bare else (session["base_url"], session["api_key"])
            messages: list = []
            for turn in range(TURNS):
                messages.append({"role": "user", "content": f"{turn}: {QUESTION}"})
                messages.append((await self.call(url, key, messages))[1])
            await self.operator("DELETE", f"/sessions/{session['id']}")
        return conversations * TURNS

    async def conversation(self, turns: int) -> tuple[list[float], list[float]]:
        """Seconds of each turn, with a session and bare, in turn."""
        session = await self.operator("POST", "/sessions")
        messages: list = []
        kept, bare = [], []
        for turn in range(turns):
            messages.append({"role": "user", "content": f"{turn}: {QUESTION}"})
            seconds, reply = await self.call(session["base_url"], session["api_key"], messages)
            kept.append(seconds)
            bare.append((await self.call(self.facts["bare"], "none", messages))[0])
            messages.append(reply)
        await self.operator("DELETE", f"/sessions/{session['id']}")
        return kept, bare


async def latency(clients: Clients, rounds: int, at_once: int) -> list[Line]:
    """What a session adds, at p50 and p95."""
    kept: list[float] = []
    bare: list[float] = []
    await clients.conversation(5)  # both sides are warm
    for _ in range(rounds):
        for some in await asyncio.gather(*(clients.conversation(TURNS) for _ in range(at_once))):
            kept += some[0]
            bare += some[1]
    lines = []
    for percent in (50, 95):
        with_session, without = (float(np.percentile(each, percent)) * 1000 for each in (kept, bare))
        who = "1 client" if at_once == 1 else f"{at_once} clients"
        lines += [
            Line(f"{who}, p{percent}: bare proxy", without, "ms"),
            Line(f"{who}, p{percent}: session", with_session, "ms"),
        ]
        aimed = at_once == 1 and percent == 50
        added = with_session - without
        aim = {"aim": f"< {AIM_MS:g}", "ok": added < AIM_MS} if aimed else {}
        lines += [
            Line(f"{who}, p{percent}: added", added, "ms", **aim),
            Line(f"{who}, p{percent}: session / proxy", with_session / without, "times"),
        ]
    return lines


def cpu_seconds(pid: int) -> float:
    """User + system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def cpu(clients: Clients, pid: int, conversations: int) -> list[Line]:
    spent = []
    for bare in (True, False):
        before = cpu_seconds(pid)
        calls = await clients.one_sided(bare, conversations)
        spent.append((cpu_seconds(pid) - before) / calls * 1000)
    return [
        Line("CPU of a call: bare proxy", spent[0], "ms"),
        Line("CPU of a call: session", spent[1], "ms"),
        Line("CPU of a call: added", spent[1] - spent[0], "ms"),
    ]


async def alive(clients: Clients, count: int) -> list[Line]:
    begun = time.perf_counter()
    opened = [await clients.operator("POST", "/sessions") for _ in range(count)]
    gate = asyncio.Semaphore(64)

    async def two_turns(session: dict) -> int:
        messages = [{"role": "user", "content": QUESTION}]
        async with gate:
            _, reply = await clients.call(session["base_url"], session["api_key"], messages)
            messages += [reply, {"role": "user", "content": QUESTION}]
            await clients.call(session["base_url"], session["api_key"], messages)
        return 2

    turns = sum(await asyncio.gather(*map(two_turns, opened)))
    there = len((await clients.operator("GET", "/sessions"))["sessions"])
    kept = 0
    for session in opened:
        kept += (await clients.operator("GET", f"/sessions/{session['id']}/trajectory"))["turns"]
    seconds = time.perf_counter() - begun
    return [
        Line("sessions alive at once", there, "", f"{count}", there == count),
        Line("their turns, collected", kept, "", f"{turns}", kept == turns),
        Line("opening, asking, collecting them", seconds, "s"),
    ]


# In this process


async def work() -> list[Line]:
    """Tokens made at turn t, in a conversation whose questions are all as long."""
    renderer = Counting()
    store = SessionStore(Forgetful(answering(ANSWER), context=CONTEXT), renderer, RealClock(), CONTEXT)
    session = store.find(store.open(make_attempt(sampling=SAMPLING)))
    messages: tuple = ()
    made, seconds, history = [], [], []
    for _ in range(200):
        messages = (*messages, {"role": "user", "content": QUESTION})
        before, begun = renderer.made, time.process_time()
        reply = await session.chat(ChatRequest(messages))
        made.append(renderer.made - before)
        seconds.append(time.process_time() - begun)
        history.append(reply.prompt_tokens)
        messages = (*messages, reply.node.reply)
    lines = [
        Line(f"turn {t}: tokens made (history {history[t - 1]})", made[t - 1], "tokens") for t in (1, 10, 100, 200)
    ]
    lines[-1].aim, lines[-1].ok = "as at turn 2", made[199] == made[1]
    early, late = (float(np.median(seconds[part])) * 1000 for part in (slice(1, 21), slice(180, 200)))
    return [
        *lines,
        Line("CPU of one of turns 2-21, without HTTP", early, "ms"),
        Line("CPU of one of turns 181-200, without HTTP", late, "ms"),
    ]


async def memory(sessions: int, turns: int = 10) -> list[Line]:
    """Bytes a token, when nothing but sessions was allocated meanwhile."""
    engine = Forgetful(answering(ANSWER * 8), context=CONTEXT)
    store = SessionStore(engine, CharRenderer(), RealClock(), CONTEXT)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tokens = 0
    for number in range(sessions):
        sampling = Sampling(max_new_tokens=400, stop_tokens=(0,))
        session = store.find(store.open(make_attempt(sampling=sampling, id=f"a{number}")))
        messages: tuple = ()
        for turn in range(turns):
            messages = (*messages, {"role": "user", "content": f"{number} {turn} {QUESTION}"})
            reply = await session.chat(ChatRequest(messages))
            messages = (*messages, reply.node.reply)
        tokens += reply.node.stop
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return [
        Line(f"{sessions} sessions of {turns} turns, {tokens} tokens", grown / 2**20, "MiB"),
        Line("memory of a cached token, messages included", grown / tokens, "bytes"),
    ]


async def measure(quick: bool, facts: dict[str, str], pid: int) -> list[Line]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        clients = Clients(http, facts)
        lines = await latency(clients, 3 if quick else 40, 1)
        lines += await latency(clients, 1 if quick else 3, 64)
        lines += await cpu(clients, pid, 5 if quick else 60)
        lines += await alive(clients, 50 if quick else 1000)
    return [*lines, *await work(), *await memory(20 if quick else 200)]


def record(lines: list[Line], quick: bool) -> dict:
    """The figures, and what they were measured on."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "benchmark": "session",
        "quick": quick,
        "commit": commit.stdout.strip(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load_1min": os.getloadavg()[0],
        "lines": [asdict(line) for line in lines],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="seconds instead of a minute")
    parser.add_argument("--json", action="store_true", help="JSON on standard output")
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="write the figures there too, with where they are from"
    )
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve_both())
        return 0
    child = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True)
    try:
        lines = asyncio.run(measure(options.quick, json.loads(child.stdout.readline()), child.pid))
    finally:
        child.kill()
        child.wait()
    if options.record is not None:
        options.record.write_text(json.dumps(record(lines, options.quick), indent=1) + "\n")
    if options.json:
        print(json.dumps([asdict(line) for line in lines], indent=2))
    else:
        for line in lines:
            met = "" if line.ok is None else ("  met" if line.ok else "  MISSED")
            aim = f"  aim {line.aim}{met}" if line.aim else ""
            print(f"{line.what:48} {line.value:12.3f} {line.unit:6}{aim}")
    return int(any(line.ok is False for line in lines))


if __name__ == "__main__":
    sys.exit(main())
