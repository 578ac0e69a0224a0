"""A program of a few lines that asks its session once, with the standard library alone: an agent for tests.

python -m miles_core.testing.fakes.asking_program
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request


def main() -> None:
    task = json.load(sys.stdin)
    body = {"model": "policy", "messages": [{"role": "user", "content": str(task["prompt"])}]}
    request = urllib.request.Request(
        f"{os.environ['MILES_BASE_URL']}/chat/completions",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {os.environ['MILES_API_KEY']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        said = json.load(response)["choices"][0]["message"]["content"]
    print(json.dumps({"reward": float(said == task["answer"]), "said": said}))


if __name__ == "__main__":
    main()
