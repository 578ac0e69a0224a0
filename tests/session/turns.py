"""A hundred thousand turns of random programs of a harness, for each family with a real tokenizer; a JSON record.

    nice -n 19 python tests/session/turns.py --turns 100000 smollm2 qwen3 deepseek-v4

What the pure core of the sessions would train on is compared, token by token, with a log that the scripted engine keeps
of what it returned (`miles_core.testing.families.programs`). The first difference ends the script with status 1 and the
seed that makes it again. A family's record replaces its older one in the file; CI runs a few hundred turns of each.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from miles_core.contracts.component import BuildContext
from miles_core.contracts.model import Renderer
from miles_core.host.activate import open_registry
from miles_core.testing.families.conversations import TOOLS
from miles_core.testing.families.programs import Bank, Harness
from miles_core.testing.families.subject import find_subject

RECORD = Path(__file__).with_name("turns.json")


def renderers(name: str) -> tuple[list[tuple[dict[str, Any], Renderer, int]], str]:
    """The family with its example's options, and where it can reason also so; each with the size of the vocabulary."""
    subject = find_subject(open_registry(), name, None)
    options = dict(subject.options)
    chosen = [options] + [{**options, key: True} for key in ("thinking", "opens_thinking") if key in options]
    found = []
    for each in chosen:
        spec = subject.registered.ref(each).build(BuildContext(1, "model"))
        found.append((each, spec.renderer(), spec.materialise().card.vocabulary))
    return found, subject.registered.plugin.title


def tools_of(renderer: Renderer) -> tuple[Any, ...]:
    try:
        renderer.render([{"role": "user", "content": "x"}], tools=TOOLS)
    except ValueError:
        return ()
    return TOOLS


def run(name: str, turns: int) -> dict[str, Any]:
    """The record of one family. Raises AssertionError with the seed for a difference."""
    variants, title = renderers(name)
    kits = [(renderer, Bank.of(renderer, vocabulary=size), tools_of(renderer)) for _, renderer, size in variants]
    done, seed, tokens = 0, 0, 0
    refused: Counter[str] = Counter()
    started = time.process_time()
    while done < turns:
        seed += 1
        renderer, bank, tools = kits[seed % len(kits)]
        harness = Harness(renderer, bank, random.Random(f"{name}/{seed}"), linear=seed % 4 == 3, tools=tools)
        try:
            harness.play(harness.rng.randint(1, 60))
        except AssertionError as error:
            raise AssertionError(f"{name}, seed {seed}: {error}") from error
        done += harness.turns
        refused.update(harness.refused)
        tokens += sum(len(each.answers[-1].tokens) for each in harness.known)
    return {
        "family": name,
        "plugin": title,
        "options": [options for options, _, _ in variants],
        "turns": done,
        "programs": seed,
        "sampled_tokens": tokens,
        "differences": 0,
        "rightly_refused": dict(sorted(refused.items())),
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("families", nargs="+")
    parser.add_argument("--turns", type=int, default=100_000)
    parser.add_argument("--record", type=Path, default=RECORD)
    given = parser.parse_args()
    for name in given.families:
        try:
            found = run(name, given.turns)
        except AssertionError as error:
            print(error, file=sys.stderr)
            return 1
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
        found |= {"commit": commit.stdout.strip(), "python": platform.python_version()}
        known = json.loads(given.record.read_text()) if given.record.is_file() else {}
        given.record.write_text(json.dumps(dict(sorted((known | {name: found}).items())), indent=1) + "\n")
        print(f"{name}: {found['turns']} turns, 0 differences, {found['cpu_seconds']} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
