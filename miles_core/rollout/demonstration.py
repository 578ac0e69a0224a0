"""The `demonstration` generator: the task's own answer as the trajectory, for supervised phases. No engine is asked."""

from __future__ import annotations

import numpy as np

from miles_core.contracts.component import BuildContext
from miles_core.contracts.options import NoOptions
from miles_core.contracts.rollout import Attempt, GenerateContext
from miles_core.errors import RequestError
from miles_core.types.sequence import NO_VERSION, Sequence
from miles_core.types.trajectory import Trajectory


class Demonstration:
    """Prompt (masked), then answer and stop token (to learn)."""

    needs_engine = False

    def __init__(self, options: NoOptions, context: BuildContext) -> None:
        pass

    async def generate(self, attempt: Attempt, context: GenerateContext) -> Trajectory:
        answer = attempt.task.answer
        if not answer:
            raise RequestError(
                f"task {attempt.task.id!r} has no answer to demonstrate",
                mend="give the task an answer, or use a generator that asks the model",
            )
        prompt = context.renderer.render(attempt.task.messages)
        learned = np.append(context.renderer.encode(answer), context.renderer.stop_tokens[:1]).astype(np.int32)
        tokens = np.concatenate([prompt, learned]).astype(np.int32)
        sequence = Sequence(
            tokens=tokens,
            sampled=np.arange(len(tokens)) >= len(prompt),
            logprobs=None,
            versions=np.full(len(tokens), NO_VERSION, np.int32),
        )
        return Trajectory(
            id=attempt.id, task_id=attempt.task.id, index=attempt.index, sequences=(sequence,), text=answer
        )
