"""What a generator says beside a trajectory is JSON data, or the attempt failed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from miles_core.contracts.lifecycle import RealClock
from miles_core.contracts.rollout import GenerateContext
from miles_core.rollout.attempts import AttemptMaker
from miles_core.rollout.single_turn import SingleTurn
from miles_core.testing import CharRenderer, ScriptedEngine, make_attempt
from miles_core.types.trajectory import Status


class Talkative(SingleTurn):
    def __init__(self, metadata):
        super().__init__()
        self._metadata = metadata

    async def generate(self, attempt, context):
        return replace(await super().generate(attempt, context), metadata=self._metadata)


@pytest.mark.parametrize("metadata", [{"seen": {1, 2}}, {"n": 10**5000}, {1: 2, (3, 4): 5}])
async def test_metadata_that_cannot_be_kept_fails_the_attempt_alone(metadata):
    context = GenerateContext(ScriptedEngine(["7", "8"]), CharRenderer(), RealClock())
    made = await AttemptMaker(Talkative(metadata), context)(make_attempt())
    assert made.status is Status.FAILED and "metadata is no JSON data" in made.metadata["error"]
    made = await AttemptMaker(Talkative({"n": 1}), context)(make_attempt())
    assert made.status is Status.COMPLETED
