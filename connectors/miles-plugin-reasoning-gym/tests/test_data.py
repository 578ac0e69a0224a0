"""Drawing, the splits, and going on where a run stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import reasoning_gym
from hypothesis import given, settings
from hypothesis import strategies as st
from miles_plugin_reasoning_gym.data import ReasoningGymData
from miles_plugin_reasoning_gym.generators import HASH_DEPENDENT, Origin
from miles_plugin_reasoning_gym.options import DataOptions

from miles_core import BuildContext, Draw, RequestError, RunError, Task

ONE_DIGIT = {"chain_sum": {"config": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}}}
"""There are 200 such sums, so splits that are drawn independently overlap."""

TEN_SUMS = {"chain_sum": {"config": {"min_terms": 1, "max_terms": 1, "min_digits": 1, "max_digits": 1}}}


def data(run_seed: int = 1, **options: Any) -> ReasoningGymData:
    chosen = {"tasks": ONE_DIGIT, "size": 30, "held_out": 20} | options
    return ReasoningGymData(DataOptions.model_validate(chosen), BuildContext(seed=run_seed, name="data"))


def take(source: ReasoningGymData, count: int) -> list[Draw]:
    draws = [source.draw() for _ in range(count)]
    return [draw for draw in draws if draw is not None]


def question(task: Task) -> str:
    return str(task.messages[-1]["content"])


def test_a_task_is_an_entry_of_its_generator() -> None:
    for task in [draw.task for draw in take(data(), 5)] + data().held_out(5):
        facts = task.metadata
        config = json.loads(facts["config"])
        source = reasoning_gym.create_dataset(facts["generator"], seed=facts["seed"], size=facts["size"], **config)
        assert (task.prompt, task.answer) == (source[facts["index"]]["question"], source[facts["index"]]["answer"])
        left, operator, right = task.prompt.removesuffix(" =").split(" ")[-3:]
        assert task.answer == str(int(left) + int(right) if operator == "+" else int(left) - int(right))


def test_an_epoch_draws_each_task_once_and_counts_repeats() -> None:
    draws = take(data(), 75)
    epochs = [draws[:30], draws[30:60], draws[60:]]
    ids = [[draw.task.id for draw in epoch] for epoch in epochs]
    assert sorted(ids[0]) == sorted(ids[1]) == sorted(f"train-chain_sum-{slot}" for slot in range(30))
    assert ids[0] != ids[1] and len(set(ids[2])) == 15
    assert [{draw.draw for draw in epoch} for epoch in epochs] == [{0}, {1}, {2}]
    by_id = {draw.task.id: draw.task for draw in epochs[0]}
    assert all(by_id[draw.task.id] == draw.task for draw in epochs[1])


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**40), held_out=st.integers(1, 150), examples=st.integers(0, 4))
def test_no_question_is_in_two_splits(seed: int, held_out: int, examples: int) -> None:
    source = data(seed, held_out=held_out, examples=examples, size=60)
    kept = [question(task) for task in source.held_out(1000)]
    assert len(set(kept)) == len(kept) == held_out
    trained = {question(draw.task) for draw in take(source, 60)}
    shown = {turn["content"] for task in source.held_out(3) for turn in task.messages[:-1] if turn["role"] == "user"}
    assert len(shown) == examples
    assert not trained & set(kept) and not trained & shown and not shown & set(kept)


def test_held_out_tasks_do_not_depend_on_the_runs_seed() -> None:
    assert data(1).held_out(20) == data(2).held_out(20)
    assert data(1, held_out_seed=7).held_out(20) != data(1).held_out(20)
    assert data(1).held_out(5) == data(1).held_out(20)[:5]
    assert len({task.id for task in data().held_out(20)}) == 20


def test_training_tasks_depend_on_the_runs_seed_unless_one_is_named() -> None:
    first, other = ([question(d.task) for d in take(data(seed), 30)] for seed in (1, 2))
    assert sorted(first) != sorted(other)
    assert take(data(1, seed=5), 30) == take(data(2, seed=5), 30)


@settings(max_examples=30, deadline=None)
@given(before=st.integers(0, 70), after=st.integers(1, 40))
def test_a_restored_source_continues_exactly(before: int, after: int) -> None:
    source = data()
    take(source, before)
    state = json.loads(json.dumps(source.state()))
    fresh = data()
    fresh.restore(state)
    assert take(fresh, after) == take(source, after)


def test_a_state_of_other_data_is_refused() -> None:
    state = data(1).state()
    with pytest.raises(RequestError, match="data of seed 1, but the recipe's is 2"):
        data(2).restore(state)
    with pytest.raises(RequestError, match="data of size 30, but the recipe's is 31"):
        data(1, size=31).restore(state)


def test_finite_data_ends() -> None:
    source = data(epochs=2)
    assert source.size() == 60
    assert len(take(source, 70)) == 60
    assert source.draw() is None
    assert data().size() is None


def test_a_mixture_follows_its_weights() -> None:
    source = data(tasks={"gcd": {"weight": 3}, "lcm": {}}, size=400, held_out=0)
    names = [draw.task.metadata["generator"] for draw in take(source, 400)]
    assert 260 < names.count("gcd") < 340  # 300 expected, deviation 8.7
    assert names.count("gcd") + names.count("lcm") == 400


def test_prompts_are_composed_as_the_options_say() -> None:
    task = data(system="Be brief.", prompt="Q: {question} {x}\nA:", examples=2).held_out(1)[0]
    roles = [message["role"] for message in task.messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert task.messages[0]["content"] == "Be brief."
    assert question(task).startswith("Q: State") and question(task).endswith(" = {x}\nA:")
    ask, answer = task.messages[1]["content"], task.messages[2]["content"]
    left, operator, right = ask.removesuffix(" = {x}\nA:").split(" ")[-3:]
    assert answer == str(int(left) + int(right) if operator == "+" else int(left) - int(right))
    assert isinstance(data().held_out(1)[0].prompt, str)


def test_too_few_questions_are_said_so() -> None:
    with pytest.raises(RequestError, match="every question of 'chain_sum' that was tried is held out"):
        take(data(tasks=TEN_SUMS, held_out=10), 1)
    with pytest.raises(RequestError, match="no held-out split"):
        data(held_out=0).held_out(1)
    with pytest.raises(RequestError, match="graph_color give no answer"):
        data(tasks=["graph_color"], examples=1).held_out(1)


def test_a_generator_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    broken = data(tasks={"word_ladder": {}}, size=20001, held_out=0)  # refused by the generator itself
    with pytest.raises(RunError, match="could not set up 'word_ladder': ValueError: Dataset size too large") as caught:
        take(broken, 1)
    assert "train task" in str(caught.value)


def test_what_generators_print_does_not_reach_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    take(data(tasks=["bf"], held_out=0), 20)
    said = capfd.readouterr()
    assert said.out == "" and said.err != ""


def digests(hash_seed: str) -> dict[str, str]:
    """Digest of some entries (few of slow ones) of every generator, made in a process of its own."""
    code = (
        "import hashlib, json\n"
        "from reasoning_gym.factory import DATASETS, create_dataset\n"
        "slow = {'futoshiki', 'puzzle24', 'zebra_puzzles', 'knight_swap', 'intermediate_integration', 'sokoban'}\n"
        "found = {}\n"
        "for name in sorted(set(DATASETS) - {'composite'}):\n"
        "    source = create_dataset(name, seed=99, size=50)\n"
        "    step = 25 if name in slow else 2 if name == 'list_functions' else 6\n"  # that one differs rarely
        "    entries = [source[i] for i in range(0, 50, step)]\n"
        "    text = ''.join(entry['question'] + str(entry['answer']) for entry in entries)\n"
        "    found[name] = hashlib.sha256(text.encode()).hexdigest()\n"
        "print()\n"  # ends the line that a generator printed on
        "print(json.dumps(found))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
    )
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_every_generator_but_the_declared_ones_is_the_same_in_every_process() -> None:
    first, second = digests("1"), digests("2")
    assert len(first) > 90
    assert {name for name in first if first[name] != second[name]} == HASH_DEPENDENT


def test_origins_survive_json() -> None:
    origin = Origin("gcd", "{}", 5, 10, 3)
    entry = origin.entry()
    assert Origin.from_metadata(json.loads(json.dumps(origin.to_metadata(entry["question"])))) == origin
