"""Sums that need a calculator, and the script that lets the model use one: OpenAI's client, and nothing of Miles in it.

The calculator computes one operation at a time, the first, and says what is left. So a sum of three numbers is two
calls and an answer: three turns of the model, each of which sees the result of the one before.

    What is 27 + 48 - 9?        calculator("27 + 48 - 9")  ->  75 - 9
                                calculator("75 - 9")       ->  66
                                66
"""

from __future__ import annotations

import itertools
import json
import random
import re
import zlib
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from openai import AsyncOpenAI
from pydantic import Field

import miles_core
from miles_core import BuildContext, Draw, Episode, Outcome, Task

TOOL = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Computes the first operation.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
    },
}
SYSTEM = "Use the calculator until one number is left."
FIRST = re.compile(r"(-?\d{1,9}) ([-+]) (\d{1,9})((?: [-+] \d{1,9})*)")


def calculator(expression: str) -> str:
    """The expression with its first operation computed."""
    found = FIRST.fullmatch(expression.strip())
    if found is None:
        return "error: expected a sum, such as 12 + 30 - 4"
    left, sign, right, rest = int(found[1]), found[2], int(found[3]), found[4]
    return f"{left + right if sign == '+' else left - right}{rest}"


class Calculating:
    """Answers the model's calls until it answers the question. The verdict is 1 for the right number alone, else half
    the share of the sum's operations that the model had computed, one after the other."""

    class Options(miles_core.Options):
        turns: int = Field(default=4, ge=1, description="model calls in one conversation")

    def __init__(self, options: Options, context: BuildContext) -> None:
        self._turns = options.turns
        self._client = AsyncOpenAI(api_key="every episode has its own")

    async def run(self, episode: Episode) -> Outcome:
        client = self._client.with_options(base_url=episode.base_url, api_key=episode.api_key)
        messages = list(episode.task.messages)
        steps = episode.task.metadata["steps"]
        calls, failures, reached = 0, 0, 0
        for _ in range(self._turns):
            completion = await client.chat.completions.create(model="policy", messages=messages, tools=[TOOL])
            choice = completion.choices[0]
            if choice.finish_reason == "length":
                break  # a turn that was cut cannot be continued
            if not choice.message.tool_calls:
                if choice.message.content == steps[-1] and reached == len(steps) - 1:
                    return Outcome(1.0, {"calls": calls, "failures": failures})
                break
            messages.append(choice.message.model_dump(exclude_none=True))
            for call in choice.message.tool_calls:
                result = calculate(call.function.name, call.function.arguments)
                calls, failures = calls + 1, failures + result.startswith("error")
                reached += result in steps[reached + 1 : reached + 2]
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        return Outcome(0.5 * reached / (len(steps) - 1), {"calls": calls, "failures": failures})


def calculate(name: str, arguments: str) -> str:
    expression = json.loads(arguments).get("expression")
    if name != "calculator" or not isinstance(expression, str):
        return "error: call calculator with an expression"
    return calculator(expression)


class Sums:
    """Sums, each with a demonstration of how to work it out. Endless. An eighth of all questions, by a checksum of
    their words, is held out: no question is both trained on and measured."""

    class Options(miles_core.Options):
        largest: int = Field(default=99, ge=9, description="largest number in a sum")
        terms: tuple[int, int] = Field(default=(2, 4), description="numbers in a sum: from, to")
        first: int = Field(default=0, ge=0, description="where to begin, so that phases see different sums")

    def __init__(self, options: Options, context: BuildContext) -> None:
        self._options = options
        self._seed = context.seed
        self._next = options.first

    def draw(self) -> Draw:
        while True:
            task = self._task(self._next)
            self._next += 1
            if not is_held_out(task):
                return Draw(task, 0)

    def held_out(self, count: int) -> list[Task]:
        return list(itertools.islice(filter(is_held_out, map(self._task, itertools.count())), count))

    def size(self) -> None:
        return None

    def state(self) -> Mapping[str, Any]:
        return {"next": self._next}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._next = state["next"]

    def _task(self, number: int) -> Task:
        rng = random.Random(f"{self._seed}/{number}")
        terms = [rng.randint(2, self._options.largest) for _ in range(rng.randint(*self._options.terms))]
        text = str(terms[0]) + "".join(f" {rng.choice('+-')} {term}" for term in terms[1:])
        steps = [text]
        while not steps[-1].removeprefix("-").isdigit():
            steps.append(calculator(steps[-1]))
        prompt = ({"role": "system", "content": SYSTEM}, {"role": "user", "content": f"What is {text}?"})
        return Task(
            f"sum-{number}", prompt, steps[-1], {"tools": [TOOL], "steps": steps, "demonstration": demonstration(steps)}
        )


def is_held_out(task: Task) -> bool:
    return zlib.crc32(task.prompt[-1]["content"].encode()) % 8 == 0


def demonstration(steps: list[str]) -> list[dict[str, Any]]:
    """Messages that work a sum out: a call and its result for each operation, and the last result as the answer."""
    messages: list[dict[str, Any]] = []
    for place, (expression, result) in enumerate(pairwise(steps)):
        function = {"name": "calculator", "arguments": json.dumps({"expression": expression})}
        call = {"id": f"call-{place}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return [*messages, {"role": "assistant", "content": steps[-1]}]
