"""A thousand turns over HTTP for each family with a real tokenizer; a JSON record.

    nice -n 19 python tests/session/http_turns.py --turns 1000 smollm2 qwen3 deepseek-v4

Twelve sessions at once, another dialect with every call, half of the calls streamed (`dialect_programs.py`). The engine
answers with what the family's format writes and with arbitrary tokens. The first difference ends the script with 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import random
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp

sys.path.insert(0, str(Path(__file__).parent))

from dialect_programs import play
from serving import served
from turns import renderers, tools_of

from miles_core.testing import ScriptedEngine
from miles_core.testing.families.programs import Bank

RECORD = Path(__file__).with_name("http_turns.json")
AT_ONCE, CONTEXT = 12, 1_000_000


def over_http(name: str, turns: int) -> dict[str, Any]:
    """The record of one family."""
    (_, renderer, vocabulary), *_ = renderers(name)[0]
    bank = Bank.of(renderer, vocabulary=vocabulary)
    started = time.process_time()
    metrics, streamed, refused = asyncio.run(_played(renderer, bank, vocabulary, -(-turns // AT_ONCE)))
    return {
        "family": name,
        "turns": int(metrics["session/turns"]),
        "sessions": AT_ONCE,
        "streamed": streamed,
        "asked_again": int(metrics["session/retries"]),
        "differences": 0,
        "rightly_refused": refused,
        "cpu_seconds": round(time.process_time() - started, 1),
    }


async def _played(renderer: Any, bank: Bank, vocabulary: int, turns: int) -> tuple[dict[str, float], int, int]:
    def answer(request: Any) -> list[int]:
        return bank.answer(random.Random(request.noise.digest()), cut=False)

    stop, tools = renderer.stop_tokens[0], tools_of(renderer)
    engine = ScriptedEngine(answer, context=CONTEXT, vocabulary=vocabulary, stop_token=stop)
    async with served(engine, renderer, context=CONTEXT) as server, aiohttp.ClientSession() as http:
        done = await asyncio.gather(
            *(play(server, http, engine, renderer, number, turns=turns, tools=tools) for number in range(AT_ONCE))
        )
        faults = set(server.store.faults) - {"not_renderable"}
        assert not faults, faults
        return server.metrics(), sum(streamed for streamed, _ in done), sum(refused for _, refused in done)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("families", nargs="+")
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--record", type=Path, default=RECORD)
    given = parser.parse_args()
    for name in given.families:
        try:
            found = over_http(name, given.turns) | {"python": platform.python_version()}
        except AssertionError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        known = json.loads(given.record.read_text()) if given.record.is_file() else {}
        given.record.write_text(json.dumps(dict(sorted((known | {name: found}).items())), indent=1) + "\n")
        print(f"{name}: {found['turns']} turns over HTTP, 0 differences, {found['cpu_seconds']} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
