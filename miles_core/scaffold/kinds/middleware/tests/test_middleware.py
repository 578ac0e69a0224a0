"""What is tried again, how often, and when."""

import asyncio

import pytest
from miles_core import Attempt, BuildContext, GenerateContext, RunError, Trajectory
from miles_core.testing import ManualClock, make_attempt, make_generate_context, make_trajectory

from miles_plugin_xyz.middleware import XyzMiddleware
from miles_plugin_xyz.options import XyzOptions


class Failing:
    """A generator whose first attempts raise what it was given."""

    needs_engine = True

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.calls = 0

    async def generate(self, attempt: Attempt, context: GenerateContext) -> Trajectory:
        self.calls += 1
        if self._errors:
            raise self._errors.pop(0)
        return make_trajectory("done")


def outcome(inner: Failing, times: int = 1) -> Trajectory:
    options = XyzOptions(times=times, pause=10)
    middleware = XyzMiddleware(options, BuildContext(seed=1, name="middleware"))

    async def story() -> Trajectory:
        clock = ManualClock()
        context = make_generate_context(clock=clock)
        attempt = asyncio.create_task(middleware.wrap(inner).generate(make_attempt(), context))
        await clock.advance(10 * times)
        return await attempt

    return asyncio.run(story())


def test_a_failed_attempt_is_made_again() -> None:
    inner = Failing(ConnectionError("gone"))
    assert outcome(inner).text == "done"
    assert inner.calls == 2


def test_not_for_ever() -> None:
    inner = Failing(*[ConnectionError("gone")] * 5)
    with pytest.raises(ConnectionError):
        outcome(inner, times=3)
    assert inner.calls == 4


def test_trouble_of_the_run_passes_at_once() -> None:
    inner = Failing(RunError("the engine died"))
    with pytest.raises(RunError):
        outcome(inner)
    assert inner.calls == 1
