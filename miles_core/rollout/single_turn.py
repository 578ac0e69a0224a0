"""The `single-turn` generator: one prompt, one answer."""

from __future__ import annotations

from miles_core.contracts.component import BuildContext
from miles_core.contracts.engine import Finish, GenerateRequest, GenerateResult
from miles_core.contracts.images import rendered
from miles_core.contracts.options import NoOptions
from miles_core.contracts.rollout import Attempt, GenerateContext
from miles_core.rollout.sequence_builder import SequenceBuilder
from miles_core.types.sequence import Sequence, TokenArray
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
        prompt = rendered(context.renderer, attempt.task.messages)
        request = GenerateRequest(
            id=attempt.id,
            tokens=prompt.tokens,
            sampling=attempt.sampling,
            noise=attempt.noise(),
            affinity=f"{attempt.purpose}/{attempt.group}",  # one engine for the group: its prompt is prefilled once
            images=prompt.images,
        )
        result = await context.engines.generate(request)
        message = context.renderer.parse(result.tokens).message
        return Trajectory(
            id=attempt.id,
            task_id=attempt.task.id,
            index=attempt.index,
            sequences=(sampled_sequence(prompt.tokens, result, request),) if len(result.tokens) else (),
            status=STATUS_OF_FINISH[result.finish],
            text=str(message.get("content") or ""),
        )


def sampled_sequence(prompt: TokenArray, result: GenerateResult, request: GenerateRequest, turn: int = 0) -> Sequence:
    """Prompt (masked) and output (sampled) of one request as one sequence."""
    row = SequenceBuilder()
    row.add(prompt, request.images)
    row.add_sampled(request, result, turn)
    return row.build()
