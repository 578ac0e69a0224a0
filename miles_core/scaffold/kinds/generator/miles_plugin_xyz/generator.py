"""A generator that asks again."""

from miles_core import (
    Attempt,
    BuildContext,
    Finish,
    GenerateContext,
    GenerateRequest,
    GenerateResult,
    Message,
    SequenceBuilder,
    Status,
    Trajectory,
)

from miles_plugin_xyz.options import XyzOptions

STATUS = {Finish.STOP: Status.COMPLETED, Finish.LENGTH: Status.TRUNCATED, Finish.ABORT: Status.ABORTED}


class XyzGenerator:
    """One conversation of several turns, as one sequence. See `miles_core.Generator`."""

    needs_engine = True

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._turns = options.turns
        self._again: Message = {"role": "user", "content": options.again}

    async def generate(self, attempt: Attempt, context: GenerateContext) -> Trajectory:
        row = SequenceBuilder()
        row.add(context.renderer.render(attempt.task.messages))
        result = await self._ask(attempt, context, row, turn=0)
        for turn in range(1, self._turns):
            if result.finish is not Finish.STOP:  # a turn that was cut has no end to go on from
                break
            row.add(context.renderer.bridge(row.tokens, [self._again]))  # what was sampled is never tokenized anew
            result = await self._ask(attempt, context, row, turn)
        return Trajectory(
            id=attempt.id,
            task_id=attempt.task.id,
            index=attempt.index,
            sequences=(row.build(),) if row.sampled_count else (),
            status=STATUS[result.finish],
            text=str(context.renderer.parse(result.tokens).message["content"]),
        )

    async def _ask(self, attempt: Attempt, context: GenerateContext, row: SequenceBuilder, turn: int) -> GenerateResult:
        """Sample one answer and add it to the row. One affinity: the whole conversation stays on one engine."""
        request = GenerateRequest(
            id=f"{attempt.id}/{turn}",
            tokens=row.tokens,
            sampling=attempt.sampling,
            noise=attempt.noise(turn),
            affinity=f"{attempt.purpose}/{attempt.id}",
        )
        result = await context.engines.generate(request)
        row.add_sampled(request, result, turn)
        return result
