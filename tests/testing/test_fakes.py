"""The public fakes: they keep the contracts that they stand for, and misbehave exactly as told."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_core import (
    Delivery,
    Finish,
    Form,
    GenerateRequest,
    NoiseKey,
    PauseMode,
    RequestError,
    RunError,
    Sampling,
    Status,
    TensorInfo,
    UpdateManifest,
    WorkerDied,
)
from miles_core.rollout.single_turn import SingleTurn
from miles_core.testing import (
    CharRenderer,
    ManualClock,
    ScriptedEngine,
    TwoTasks,
    make_attempt,
    make_batch,
    make_generate_context,
    make_group,
    make_sequence,
    make_trajectory,
    run_recipe,
    scripted_logprob,
    tiny_model,
)
from miles_core.testing.kit.reference import ReferenceLlama
from miles_core.weights.publication import publish


def request(name: str = "r", text: str = "1+2=", **sampling) -> GenerateRequest:
    tokens = CharRenderer().encode(text)
    return GenerateRequest(
        name, tokens, Sampling(**{"max_new_tokens": 8, **sampling}), NoiseKey(1, "t", name, 0, 0), name
    )


def text_of(result) -> str:
    return CharRenderer().parse(result.tokens).message["content"]


async def test_answers_in_order_with_an_independent_log():
    engine = ScriptedEngine(["3", [52]])
    first, second = await asyncio.gather(engine.generate(request("a")), engine.generate(request("b")))
    assert [text_of(first), text_of(second)] == ["3", "4"]
    first.tokens[0] = 99  # what a generator does to its arrays leaves the log alone
    assert [e.tokens for e in engine.log] == [(51, 0), (52, 0)]
    assert [e.request.id for e in engine.log] == ["a", "b"]
    assert engine.log[0].logprobs == (scripted_logprob(1, 0, 51), scripted_logprob(1, 1, 0))
    assert first.finish is Finish.STOP
    with pytest.raises(RunError, match="no answer left for request 'c'"):
        await engine.generate(request("c"))
    assert engine.log[2].error.startswith("RunError")


async def test_answers_of_a_function_limits_and_ignored_stops():
    engine = ScriptedEngine(lambda r: r.id)
    assert text_of(await engine.generate(request("abc"))) == "abc"
    cut = await engine.generate(request("abcdef", max_new_tokens=2))
    assert (text_of(cut), cut.finish) == ("ab", Finish.LENGTH)
    on = await engine.generate(request("abc", max_new_tokens=7, ignore_stop=True))
    assert (text_of(on), on.finish) == ("abcabca", Finish.LENGTH)
    own = await engine.generate(request("abc", stop_tokens=(98,)))
    assert (text_of(own), own.finish) == ("ab", Finish.STOP)


async def test_without_answers_the_noise_key_alone_decides():
    alone = await ScriptedEngine().generate(request("a"))
    engine = ScriptedEngine()
    results = await asyncio.gather(*(engine.generate(request(name)) for name in "bca"))
    assert text_of(results[2]) == text_of(alone) != text_of(results[0])


async def test_wrong_requests_are_refused():
    engine = ScriptedEngine(context=10, vocabulary=40)
    with pytest.raises(RequestError, match="the context is 10"):
        await engine.generate(request(text="1" * 8))
    with pytest.raises(RequestError, match="vocabulary of 40"):
        await engine.generate(request(text="1", max_new_tokens=1))


@pytest.mark.parametrize("mode", list(PauseMode))
async def test_requests_in_flight_over_an_update(mode):
    clock = ManualClock()
    engine = ScriptedEngine(["abcdef"], clock=clock, seconds_per_token=1.0)
    running = asyncio.create_task(engine.generate(request()))
    await clock.advance(3)

    async def transfer() -> None:
        await engine.load(Delivery(Form.TENSORS, "none"))

    await publish(UpdateManifest(2), [engine], transfer, mode)
    await clock.advance(10)
    result = await running
    spans = [(span.version, span.start, span.stop) for span in result.spans]
    if mode is PauseMode.ABORT:
        assert (spans, result.finish) == ([(1, 0, 3)], Finish.ABORT)
    else:
        assert (spans, result.finish) == ([(1, 0, 3), (2, 3, 7)], Finish.STOP)
    assert await engine.version() == 2


async def test_an_engine_without_weights_and_its_first_update():
    engine = ScriptedEngine(version=None, tensors=[TensorInfo("w", (2,), "float32")])
    assert await engine.version() is None
    with pytest.raises(RunError, match="no usable weights"):
        await engine.generate(request())
    with pytest.raises(RunError, match="not paused"):
        await engine.begin_update(UpdateManifest(1))
    await engine.pause(PauseMode.RETRACT)
    with pytest.raises(RunError, match=r"not \{\}"):
        await engine.begin_update(UpdateManifest(1))


async def test_misbehaviour():
    engine = ScriptedEngine(lambda _: "abc")
    engine.fail_next(ValueError("boom"), after=2)
    with pytest.raises(ValueError, match="boom"):
        await engine.generate(request())
    assert engine.log[0].tokens == (97, 98)
    engine.drop_logprobs()
    short = await engine.generate(request())
    assert (len(short.tokens), len(short.logprobs)) == (4, 3)
    engine.go_back(0)
    assert await engine.version() == 0 and (await engine.generate(request())).spans[0].version == 0
    engine.hang()
    hanging = asyncio.create_task(engine.generate(request()))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not hanging.done() and (await engine.stats()).running == 1
    engine.die()
    with pytest.raises(WorkerDied):
        await hanging
    with pytest.raises(WorkerDied):
        await engine.generate(request())
    assert not (await engine.health()).ok


async def test_a_cancelled_request_frees_its_slot():
    engine = ScriptedEngine()
    engine.hang()
    running = asyncio.create_task(engine.generate(request()))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await engine.stats()).running == 0 and engine.log[0].finish is None


async def test_the_clock_wakes_sleepers_in_order_at_their_own_time():
    clock, woken = ManualClock(), []

    async def sleeper(name: str, *delays: float) -> None:
        for delay in delays:
            await clock.sleep(delay)
            woken.append((name, clock.now()))

    tasks = [asyncio.create_task(s) for s in (sleeper("late", 3), sleeper("twice", 1, 1), sleeper("never", 9))]
    await clock.advance(5)
    assert woken == [("twice", 1), ("twice", 2), ("late", 3)]
    assert (clock.now(), clock.sleeping) == (5, 1)
    tasks[2].cancel()
    await clock.advance(5)
    assert len(woken) == 3
    with pytest.raises(ValueError):
        await clock.advance(-1)


def test_two_tasks():
    endless, finite = TwoTasks(), TwoTasks(epochs=2)
    assert [(d.task.id, d.draw) for d in (endless.draw() for _ in range(3))] == [
        ("sum-1", 0),
        ("sum-2", 0),
        ("sum-1", 1),
    ]
    assert endless.size() is None and finite.size() == 4
    assert len([1 for _ in range(9) if finite.draw()]) == 4
    other = TwoTasks()
    other.restore(endless.state())
    assert other.draw() == endless.draw()
    assert {t.id for t in endless.held_out(9)}.isdisjoint(t.id for t in TwoTasks.TASKS)


MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["system", "user", "assistant", "tool"]),
            "content": st.text(st.characters(max_codepoint=127, min_codepoint=1), max_size=5),
        }
    ),
    min_size=1,
    max_size=4,
)


@given(MESSAGES, MESSAGES, st.text(st.characters(max_codepoint=127, min_codepoint=1), max_size=5))
def test_characters_render_append_only(before, after, said):
    renderer = CharRenderer()
    prompt = renderer.render(before)
    answer = np.append(renderer.encode(said), np.int32(0)).astype(np.int32)
    turn = np.concatenate([prompt, answer])
    whole = renderer.render([*before, renderer.parse(answer).message, *after])
    assert np.array_equal(np.concatenate([turn, renderer.bridge(turn, after)]), whole)


def test_characters_refuse_what_has_no_token():
    for message in ({"role": "robot", "content": "a"}, {"role": "user", "content": ["a"]}, {"role": "user"}):
        with pytest.raises(ValueError):
            CharRenderer().render([message])
    with pytest.raises(ValueError, match="ASCII"):
        CharRenderer().encode("é")


@given(st.lists(st.text(st.characters(max_codepoint=127, min_codepoint=1), max_size=4), min_size=1, max_size=3))
def test_made_sequences_agree_with_themselves(turns):
    line = make_sequence("q", turns, versions=range(1, len(turns) + 1))
    assert [span.version for span in line.spans] == list(range(1, len(turns) + 1))
    said = "".join(f"{text}\0" for text in turns)
    assert CharRenderer().decode(line.tokens[line.sampled]) == said


def test_made_groups_and_batches():
    group = make_group(["3", "4", "5"], [1.0, 0.0, None], statuses=[Status.COMPLETED, Status.TRUNCATED, Status.FAILED])
    assert [t.sequences == () for t in group.trajectories] == [False, False, True]
    batch = make_batch([group], {"g0/0": 2.0, "g0/1": [np.full(7, -1.0, np.float32)]})
    assert [row.advantages[row.sequence.sampled].tolist() for row in batch.rows] == [[2.0, 2.0], [-1.0, -1.0]]
    assert make_batch([group]).rows[0].advantages.max() == 1.0
    assert make_trajectory(["a", "b"]).text == "b" and make_sequence(demonstration=True).logprobs is None


async def test_a_generator_without_a_model():
    engine = ScriptedEngine(["3"])
    trajectory = await SingleTurn().generate(make_attempt(), make_generate_context(engine))
    assert trajectory.text == "3"
    row = trajectory.sequences[0]
    assert tuple(row.tokens[row.sampled].tolist()) == engine.log[0].tokens
    assert tuple(row.logprobs[row.sampled].tolist()) == engine.log[0].logprobs


def test_a_whole_run_without_a_model(tmp_path):
    run = run_recipe(tmp_path, trainer={"use": "toy", "learning_rate": 1.0})
    assert [record["step"] for record in run.metrics] == [0, 1]


def test_the_tiny_model_is_a_function_of_its_seed(tmp_path):
    files = [tiny_model(tmp_path / name, seed=seed) for name, seed in (("a", 0), ("b", 0), ("c", 1))]
    a, b, c = ((f.path / "model.safetensors").read_bytes() for f in files)
    assert a == b != c
    assert files[0].card.parameters == 6736


def test_the_tiny_model_loads_in_transformers_and_tokenizers(tmp_path):
    tokenizers, transformers = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")
    files = tiny_model(tmp_path)
    tokenizer = tokenizers.Tokenizer.from_file(str(files.path / "tokenizer.json"))
    assert tokenizer.encode("1+2=\n").ids == CharRenderer().encode("1+2=\n").tolist()
    model, report = transformers.AutoModelForCausalLM.from_pretrained(files.path, output_loading_info=True)
    assert not any(report.values()) and sum(p.numel() for p in model.parameters()) == files.card.parameters
    tokens = make_sequence("2+2=", "a longer answer").tokens
    logits = model(pytest.importorskip("torch").from_numpy(tokens.astype(np.int64))[None]).logits[0].detach().double()
    for temperature in (1.0, 0.3):
        known = ReferenceLlama(files.path).distributions(tokens, temperature)
        assert np.allclose(known, (logits / temperature).log_softmax(-1).numpy(), atol=1e-4)


def test_every_public_name_is_there():
    import miles_core.testing

    assert all(getattr(miles_core.testing, name) is not None for name in dir(miles_core.testing))


def test_importing_the_fakes_costs_nothing_until_they_are_used():
    code = "import sys, miles_core.testing; sys.exit('numpy' in sys.modules or 'pydantic' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
