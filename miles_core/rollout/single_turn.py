"""The `single-turn` generator: one prompt, one answer."""

from __future__ import annotations

import numpy as np

from miles_core.contracts.component import BuildContext
from miles_core.contracts.engine import Finish, GenerateRequest, GenerateResult
from miles_core.contracts.options import NoOptions
from miles_core.contracts.rollout import Attempt, GenerateContext
from miles_core.types.sequence import NO_VERSION, Sequence, Span, TokenArray
from miles_core.types.trajectory import Status, Trajectory

STATUS_OF_FINISH = {
    Finish.STOP: Status.COMPLETED,
    Finish.LENGTH: Status.TRUNCATED,
    Finish.ABORT: Status.ABORTED,
}


class SingleTurn:
    """Renders the task's prompt, samples one continuation, and keeps it token for token."""

    needs_engine = True

    def __init__(self, options: NoOptions | None = None, context: BuildContext | None = None) -> None:
        pass

    async def generate(self, attempt: Attempt, context: GenerateContext) -> Trajectory:
        prompt = context.renderer.render(attempt.task.messages)
        request = GenerateRequest(
            id=attempt.id,
            tokens=prompt,
            sampling=attempt.sampling,
            noise=attempt.noise(),
            affinity=f"{attempt.purpose}/{attempt.group}",  # one engine for the group: its prompt is prefilled once
        )
        result = await context.engines.generate(request)
        message = context.renderer.parse(result.tokens).message
        return Trajectory(
            id=attempt.id,
            task_id=attempt.task.id,
            index=attempt.index,
            sequences=(sampled_sequence(prompt, result, request),) if len(result.tokens) else (),
            status=STATUS_OF_FINISH[result.finish],
            text=str(message.get("content") or ""),
        )


def sampled_sequence(prompt: TokenArray, result: GenerateResult, request: GenerateRequest, turn: int = 0) -> Sequence:
    """Prompt (masked) and output (sampled) of one request as one sequence."""
    before, total = len(prompt), len(prompt) + len(result.tokens)
    sampled = np.arange(total) >= before
    logprobs = np.zeros(total, np.float32)
    logprobs[before:] = result.logprobs
    versions = np.full(total, NO_VERSION, np.int32)
    spans = []
    for span in result.spans:
        start, stop = before + span.start, before + span.stop
        versions[start:stop] = span.version
        temperature = request.sampling.temperature
        spans.append(Span(start, stop, span.version, result.engine, request.id, turn, temperature))
    return Sequence(
        tokens=np.concatenate([prompt, result.tokens]).astype(np.int32),
        sampled=sampled,
        logprobs=logprobs,
        versions=versions,
        spans=tuple(spans),
        routing=result.routing,
    )
