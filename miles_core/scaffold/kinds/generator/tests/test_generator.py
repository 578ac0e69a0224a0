"""What is asked, what is learned from, and how attempts end."""

import asyncio

import numpy as np
from miles_core import BuildContext, PauseMode, Sampling, Status, Trajectory
from miles_core.testing import CharRenderer, ScriptedEngine, make_attempt, make_generate_context

from miles_plugin_xyz.generator import XyzGenerator
from miles_plugin_xyz.options import XyzOptions


def generated(engine: ScriptedEngine, max_new_tokens: int = 16) -> Trajectory:
    options = XyzOptions(turns=2, again="Sure?")
    generator = XyzGenerator(options, BuildContext(seed=1, name="generator"))
    attempt = make_attempt(sampling=Sampling(max_new_tokens=max_new_tokens))
    return asyncio.run(generator.generate(attempt, make_generate_context(engine)))


def test_the_last_answer_counts() -> None:
    engine = ScriptedEngine(["4", "3"])
    trajectory = generated(engine)
    assert (trajectory.text, trajectory.status) == ("3", Status.COMPLETED)
    asked = [CharRenderer().decode(exchange.request.tokens) for exchange in engine.log]
    assert asked == ["1+2=\n", "1+2=\n4\x00\nSure?\n"]


def test_both_answers_are_learned_from_and_nothing_else() -> None:
    engine = ScriptedEngine(["4", "3"])
    (row,) = generated(engine).sequences
    said = [token for exchange in engine.log for token in exchange.tokens]
    logprobs = [logprob for exchange in engine.log for logprob in exchange.logprobs]
    assert row.tokens[row.sampled].tolist() == said
    np.testing.assert_array_equal(row.logprobs[row.sampled] if row.logprobs is not None else [], logprobs)
    assert [span.turn for span in row.spans] == [0, 1]


def test_turns_have_noise_of_their_own_and_one_engine() -> None:
    engine = ScriptedEngine(["4", "3"])
    generated(engine)
    first, second = (exchange.request for exchange in engine.log)
    assert first.noise != second.noise
    assert first.affinity == second.affinity


def test_an_answer_that_was_cut_is_the_last() -> None:
    engine = ScriptedEngine(["444", "333"])
    assert generated(engine, max_new_tokens=2).status is Status.TRUNCATED
    assert len(engine.log) == 1


def test_an_aborted_attempt_is_not_asked_again() -> None:
    async def story() -> Trajectory:
        engine = ScriptedEngine(["4" * 100])
        options = XyzOptions()
        generator = XyzGenerator(options, BuildContext(seed=1, name="generator"))
        attempt = make_attempt(sampling=Sampling(max_new_tokens=100))
        running = asyncio.create_task(generator.generate(attempt, make_generate_context(engine)))
        for _ in range(10):
            await asyncio.sleep(0)
        await engine.pause(PauseMode.ABORT)
        return await running

    assert asyncio.run(story()).status is Status.ABORTED
