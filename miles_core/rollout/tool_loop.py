"""The `tool-loop` generator: the model calls typed Python functions until it answers without a call.

It works on the pure core of a session (`session.conversation`), so a turn is bridged to the next in tokens and what was
sampled is never tokenized again; there is no HTTP between.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pydantic import Field, PositiveInt

from miles_core.contracts.component import BuildContext
from miles_core.contracts.engine import Finish, GenerateRequest, GenerateResult
from miles_core.contracts.options import Options
from miles_core.contracts.rollout import Attempt, GenerateContext
from miles_core.errors import RequestError
from miles_core.rollout.python_tools import PythonTool, ToolResult, load_tools
from miles_core.session.attach import Linear
from miles_core.session.collect import sequences
from miles_core.session.conversation import Conversation, Pending
from miles_core.session.faults import SessionFault
from miles_core.session.matching import StrictMatcher
from miles_core.session.messages import read_messages
from miles_core.types.task import Message
from miles_core.types.trajectory import Status, Trajectory


class ToolLoopOptions(Options):
    """Which functions, and how far a conversation may go."""

    tools: tuple[str, ...] = Field(min_length=1, description="functions that the model may call, each module:function")
    turns: PositiveInt = Field(default=8, description="model calls at most; the calls of the last turn are not made")
    seconds: float = Field(default=10.0, gt=0, description="time limit of one call of a function")
    characters: PositiveInt = Field(default=4000, description="a longer result is cut, and says so")

    def code(self) -> Iterable[str]:
        return self.tools


class ToolLoop:
    """One conversation, one sequence. `metadata.tools` counts turns, calls and failures, and says what ended it: an
    `answer`, or one of the limits `tokens` (of a turn), `turns`, `context`; those are truncated trajectories."""

    needs_engine = True

    def __init__(self, options: ToolLoopOptions, context: BuildContext | None = None) -> None:
        self._options = options
        self._tools = load_tools(options.tools)
        self._definitions = tuple(tool.definition for tool in self._tools.values())

    async def generate(self, attempt: Attempt, context: GenerateContext) -> Trajectory:
        conversation = Conversation(context.renderer, Linear(), StrictMatcher(), self._options.turns)
        messages = read_messages([dict(message) for message in attempt.task.messages])
        counts: Counter[str] = Counter(turns=0, calls=0, failures=0)
        ended = "turns"
        while counts["turns"] < self._options.turns:
            pending = self._prepare(conversation, messages, attempt)
            result = await _ask(pending, attempt, context)
            if result is None or result[1].finish is Finish.ABORT:
                ended = "context" if result is None else "abort"
                break
            node = conversation.commit(pending, *result)
            counts["turns"] += 1
            if node.sampled.finish is Finish.LENGTH or "tool_calls" not in node.reply:
                ended = "tokens" if node.sampled.finish is Finish.LENGTH else "answer"
                break
            if counts["turns"] < self._options.turns:
                messages = (*messages, node.reply, *await self._results(node.reply["tool_calls"], context, counts))
        return _trajectory(attempt, conversation, ended, counts)

    def _prepare(self, conversation: Conversation, messages: tuple[Message, ...], attempt: Attempt) -> Pending:
        try:
            return conversation.prepare(messages, tools=self._definitions)
        except SessionFault as fault:
            if fault.code == "not_renderable" and not len(conversation.tree):
                raise RequestError(fault.sentence, where=f"task {attempt.task.id!r}, with tools") from fault
            raise

    async def _results(self, calls: Any, context: GenerateContext, counts: Counter[str]) -> list[Message]:
        """The calls of one turn are made side by side; their results stand in the order of the calls."""
        results = await asyncio.gather(*(self._result(call["function"], context) for call in calls))
        counts["calls"] += len(results)
        counts["failures"] += sum(result.failed for result in results)
        return [
            {"role": "tool", "tool_call_id": call["id"], "content": self._bounded(result.text)}
            for call, result in zip(calls, results, strict=True)
        ]

    async def _result(self, function: Any, context: GenerateContext) -> ToolResult:
        tool: PythonTool | None = self._tools.get(function["name"])
        if tool is None:
            known = ", ".join(self._tools)
            return ToolResult(f"error: there is no tool {function['name']!r:.60}; there is: {known}", failed=True)
        return await tool.call(function["arguments"], self._options.seconds, context.clock)

    def _bounded(self, text: str) -> str:
        more = len(text) - self._options.characters
        return text if more <= 0 else f"{text[: self._options.characters]}... ({more} more characters)"


async def _ask(
    pending: Pending, attempt: Attempt, context: GenerateContext
) -> tuple[GenerateRequest, GenerateResult] | None:
    """What an engine makes of a prepared turn; None when there is no room for one token. The engine is the group's,
    which has its prompt in the cache."""
    limit = attempt.sampling.max_new_tokens
    if context.longest is not None:
        limit = min(limit, context.longest - len(pending.tokens))
    if limit < 1:
        return None
    request = GenerateRequest(
        id=f"{attempt.id}/{pending.turn}",
        tokens=pending.tokens,
        sampling=replace(attempt.sampling, max_new_tokens=limit),
        noise=attempt.noise(pending.turn),
        affinity=f"{attempt.purpose}/{attempt.group}",
        images=pending.all_images,
    )
    return request, await context.engines.generate(request)


def _trajectory(attempt: Attempt, conversation: Conversation, ended: str, counts: Counter[str]) -> Trajectory:
    last = conversation.tree.newest
    content = "" if last is None else last.reply["content"]
    status = {"answer": Status.COMPLETED, "abort": Status.ABORTED}.get(ended, Status.TRUNCATED)
    return Trajectory(
        id=attempt.id,
        task_id=attempt.task.id,
        index=attempt.index,
        sequences=sequences(conversation.policy.kept(conversation.tree)),
        status=status if last is not None else Status.ABORTED,
        text=content if isinstance(content, str) else "",
        metadata={"tools": {**counts, "ended": ended}},
    )
