"""The `demonstration` generator: what a task shows as the trajectory, for supervised phases. No engine is asked.

A task shows its answer, or a whole conversation: `metadata.demonstration` is then the list of messages that follow its
prompt, from an assistant's to an assistant's, and `metadata.tools` the tools that they call. Every turn of the
assistant is learned; it becomes the tokens that a session would have if the model had sampled it.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Several
from itertools import pairwise
from typing import Any

import numpy as np

from miles_core.contracts.component import BuildContext
from miles_core.contracts.images import Rendered, bridged, rendered
from miles_core.contracts.model import Renderer
from miles_core.contracts.options import NoOptions
from miles_core.contracts.rollout import Attempt, GenerateContext
from miles_core.errors import RequestError
from miles_core.types.sequence import NO_VERSION, Sequence, TokenArray
from miles_core.types.task import Message, Task, ToolDefinition
from miles_core.types.trajectory import Trajectory


class Demonstration:
    """Prompts and results (masked), answers and stop tokens (to learn)."""

    needs_engine = False

    def __init__(self, options: NoOptions, context: BuildContext) -> None:
        pass

    async def generate(self, attempt: Attempt, context: GenerateContext) -> Trajectory:
        shown = attempt.task.metadata.get("demonstration")
        if shown:
            parts, text = _conversation(context.renderer, attempt.task, _checked(attempt.task, shown))
        else:
            parts, text = _answer(context.renderer, attempt.task)
        tokens = _tokens(parts)
        starts = np.cumsum([0, *(len(part.tokens) for part in parts)]).tolist()
        sequence = Sequence(
            tokens=tokens,
            sampled=np.concatenate([np.full(len(part.tokens), place % 2 == 1) for place, part in enumerate(parts)]),
            logprobs=None,
            versions=np.full(len(tokens), NO_VERSION, np.int32),
            images=tuple(s.moved(start) for start, part in zip(starts, parts, strict=False) for s in part.images),
        )
        return Trajectory(id=attempt.id, task_id=attempt.task.id, index=attempt.index, sequences=(sequence,), text=text)


Parts = list[Rendered]
"""Tokens by turns, and their images: what stands before, what is learned, what stands before, ..."""


def _tokens(parts: Parts) -> TokenArray:
    return np.concatenate([part.tokens for part in parts]).astype(np.int32)


def _answer(renderer: Renderer, task: Task) -> tuple[Parts, str]:
    if not task.answer:
        raise RequestError(
            f"task {task.id!r} has no answer to demonstrate",
            mend="give the task an answer, or use a generator that asks the model",
        )
    answer = np.append(renderer.encode(task.answer), renderer.stop_tokens[:1]).astype(np.int32)
    return [rendered(renderer, task.messages), Rendered(answer)], task.answer


def _conversation(renderer: Renderer, task: Task, shown: Several[Message]) -> tuple[Parts, str]:
    """Raises RequestError for what the renderer cannot express."""
    tools: Several[ToolDefinition] = task.metadata.get("tools") or ()
    turns = [place for place, message in enumerate(shown) if message["role"] == "assistant"]
    before: list[Message] = list(task.messages)
    parts: Parts = []
    try:
        for place, following in zip(turns, [*turns[1:], len(shown)], strict=True):
            if not parts:
                parts.append(rendered(renderer, before, tools=tools))
            parts.append(Rendered(_sampled(renderer, before, shown[place], tools)))
            added = shown[place + 1 : following]
            if added:
                parts.append(bridged(renderer, _tokens(parts), added, tools=tools))
            before += shown[place:following]
    except ValueError as error:
        raise RequestError(f"the demonstration cannot be rendered: {error}", where=f"task {task.id!r}") from error
    return parts, str(shown[-1]["content"] or "")


def _sampled(renderer: Renderer, before: Several[Message], turn: Message, tools: Several[ToolDefinition]) -> TokenArray:
    """The tokens of an assistant's turn, up to its stop token, as a model would sample them after `before`."""
    prompt = rendered(renderer, before, tools=tools).tokens
    whole = rendered(renderer, [*before, turn], tools=tools, generation=False).tokens
    (ends,) = np.nonzero(np.isin(whole[len(prompt) :], renderer.stop_tokens))
    if not np.array_equal(whole[: len(prompt)], prompt) or not len(ends):
        raise ValueError("its rendered turn does not begin where the model begins and end with a stop token")
    return whole[len(prompt) : len(prompt) + ends[0] + 1]


def _checked(task: Task, shown: Any) -> list[Message]:
    fault = ""
    if not isinstance(shown, list | tuple) or not all(isinstance(each, Mapping) and "role" in each for each in shown):
        fault = "is no list of messages"
    elif shown[0]["role"] != "assistant" or shown[-1]["role"] != "assistant":
        fault = "does not begin and end with a message of the assistant"
    elif any(a["role"] == b["role"] == "assistant" for a, b in pairwise(shown)):
        fault = "has two messages of the assistant in a row"
    if fault:
        raise RequestError(f"metadata.demonstration of task {task.id!r} {fault}")
    return list(shown)
