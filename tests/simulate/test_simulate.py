"""Forecasts: the same twice, nothing lost, and as far as a pencil reaches, right."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from miles_core.recipe.plan import load_plan
from miles_core.simulate.lengths import read_lengths
from miles_core.simulate.service import Service
from miles_core.simulate.simulate import Question, phase_of, simulate

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes" / "toy-async.yaml"
INSTANT = {"train_seconds": 0.0, "publish_seconds": 0.0, "train_tokens_per_second": 1e12}
UNFILTERED = ("filters=[]",)
CONSTANT = read_lengths("constant:tokens=10", Path())


def schedule(use: str, groups: int = 4, size: int = 4, **more) -> str:
    return f"schedule={json.dumps({'use': use, 'groups_per_step': groups, 'group_size': size, **more})}"


def forecast(*settings_, lengths=CONSTANT, trajectories=160, engines=1, seed=1, limit=None, **assumed):
    plan, _ = load_plan(RECIPE, [*settings_])
    phase = phase_of(plan, None)
    if limit is not None:
        phase = replace(phase, sampling=replace(phase.sampling, max_new_tokens=limit))
    service = Service(**{"seconds_per_token": 0.1, "seconds_per_neighbour": 0.0, **assumed})
    return simulate(plan, phase, Question(engines, trajectories, lengths, service, seed))


def test_one_slot_and_constant_lengths_by_hand():
    # a step: 2 attempts of 1 s one after the other, 1 s of training, 0.5 s of publication
    result = forecast(
        schedule("sync", groups=1, size=2), *UNFILTERED, limit=10, trajectories=40, slots=1,
        train_seconds=1.0, train_tokens_per_second=1e12, publish_seconds=0.5,
    )  # fmt: skip
    steady = result["steady"]
    assert result["seconds"] == pytest.approx(20 * 3.5)
    assert steady["trainer_idle"] == pytest.approx(2 / 3.5)
    assert steady["engine_idle"] == pytest.approx(1 - 3 / (2 * 3.5))  # of two slots: two for 1 s, one for 1 s
    assert steady["engines_without_requests"] == steady["slots_without_requests"] == pytest.approx(1 - 2 / 3.5)
    assert steady["tokens_per_second"] == pytest.approx(20 / 3.5)
    assert result["trajectories"] == {"trained": 40} and result["staleness"] == {"mean": 0, "max": 0}


def test_overlap_hides_the_shorter_half():
    # one-step-off: 1 s of rollout under 3 s of training; every batch but the first is one version old
    result = forecast(
        schedule("one-step-off"), *UNFILTERED, limit=10, train_seconds=3.0, train_tokens_per_second=1e12,
        publish_seconds=0.0,
    )  # fmt: skip
    assert result["seconds"] == pytest.approx(1 + 10 * 3)
    assert result["steady"]["trainer_idle"] == pytest.approx(0)
    assert result["steady"]["engine_idle"] == pytest.approx(2 / 3)
    assert result["staleness"] == {"mean": pytest.approx(0.9), "max": 1}


def test_a_synchronous_step_lasts_as_long_as_its_longest_attempt():
    lengths, steps = read_lengths("lognormal:mu=4,sigma=1", Path()), 300
    result = forecast(
        schedule("sync"), *UNFILTERED, lengths=lengths, trajectories=16 * steps, engines=4, limit=10**6, **INSTANT
    )
    drawn = np.rint(np.random.default_rng(1).lognormal(4, 1, (100_000, 16))).max(axis=1) * 0.1
    error = drawn.std() / math.sqrt(steps)
    assert result["seconds"] / steps == pytest.approx(drawn.mean(), abs=4 * error)
    mean = 0.1 * math.exp(4.5)
    assert result["steady"]["engine_idle"] == pytest.approx(1 - mean / drawn.mean(), abs=0.05)


def test_schedules_that_wait_less_keep_engines_busier():
    lengths = read_lengths("lognormal:mu=4,sigma=1", Path())
    idle = [
        forecast(
            schedule(use, groups=32), *UNFILTERED, lengths=lengths, trajectories=128 * 20, engines=4, limit=10**6,
            train_seconds=6.0, publish_seconds=0.1, train_tokens_per_second=1e12,
        )["steady"]["engine_idle"]
        for use in ("sync", "one-step-off", "async")
    ]  # fmt: skip
    assert idle[0] > idle[1] > 0.5
    assert idle[2] < 0.02  # a group of 4 starts when 4 slots are free: 1.5 of 128 are not, on average


def test_the_same_question_has_the_same_answer_and_another_seed_another():
    asked = {"lengths": read_lengths("lognormal:mu=3,sigma=1", Path()), "aborted": 0.05, "solved": 0.5, "engines": 3}
    answers = [json.dumps(forecast(**asked, seed=seed)) for seed in (1, 1, 2)]
    assert answers[0] == answers[1] != answers[2]


class Counted:
    """Lengths that know how many were drawn."""

    name = "counted"

    def __init__(self) -> None:
        self.drawn = 0

    def draw(self, task, group, size):
        self.drawn += size
        return read_lengths("lognormal:mu=2,sigma=1.5,prompt=5", Path()).draw(task, group, size)


@given(
    use=st.sampled_from(
        [
            schedule("sync"),
            schedule("one-step-off"),
            schedule("async", max_staleness=1),
            schedule("async", max_staleness=3, order="submission", over_sampling=1.5),
            schedule("async", over_sampling=3.0, refill="group", pause="abort"),
            schedule("async", update_every=2, over_sampling=2.0),
        ]
    ),
    staleness=st.sampled_from(["oldest-token", "mean-version", "per-token", "resample"]),
    recycle=st.sampled_from(["[]", "[aborted, stale]"]),
    chances=st.tuples(st.floats(0, 0.1), st.floats(0, 0.1), st.sampled_from([None, 0.3, 0.7])),
    seed=st.integers(0, 99),
)
@settings(max_examples=20, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # a failure says enough
def test_every_trajectory_has_one_fate(use, staleness, recycle, chances, seed):
    lengths = Counted()
    aborted, failed, solved = chances
    limit = "" if "max_staleness" in use else ", limit: 1"
    result = forecast(
        use, f"buffer.recycle={recycle}", f"staleness={{use: {staleness}{limit}}}", lengths=lengths, seed=seed,
        limit=200, aborted=aborted, failed=failed, solved=solved, engines=2, train_seconds=5.0, publish_seconds=0.3,
    )  # fmt: skip
    fates = result["trajectories"]
    assert sum(fates.values()) == lengths.drawn
    assert fates["trained"] <= 160 <= fates["trained"] + fates.get("failed", 0) + fates.get("stale", 0)
    assert result["steps"] == 10


def test_over_sampling_with_a_limit_throws_stale_groups_away_and_they_are_longer():
    lengths = read_lengths("lognormal:mu=3,sigma=1.5", Path())
    to_the_end, cancelled, mended = (
        forecast(
            schedule("async", groups=8), f"staleness={{{policy}, limit: 2}}", *UNFILTERED, lengths=lengths,
            trajectories=2560, engines=2, limit=10**5, train_seconds=0.5, publish_seconds=0.1,
        )
        for policy in ("use: oldest-token, cancel: false", "use: oldest-token", "use: resample")
    )  # fmt: skip
    assert to_the_end["discarded_groups"]["stale"] > 5
    assert to_the_end["lengths"]["stale"]["mean"] > 1.5 * to_the_end["lengths"]["trained"]["mean"]
    assert cancelled["discarded_groups"]["cancelled"] > 5 and cancelled["trajectories"]["cancelled"] > 5
    assert cancelled["seconds"] < to_the_end["seconds"]  # the slots of doomed stragglers make others
    assert mended["discarded_groups"]["made again in part"] > 5
    assert to_the_end["lengths"]["trained"]["mean"] < mended["lengths"]["trained"]["mean"]


def cli(*arguments: str, seed: str = "0") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "miles_core.cli.entry", "simulate", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, check=False
    )


def test_the_command_prints_the_same_json_twice_and_nothing_else():
    asked = ("recipes/toy-async.yaml", "--engines", "50", "--trajectories", "3000", "--json", "--assume", "solved=0.4")
    first, second = cli(*asked, seed="1"), cli(*asked, seed="2")
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    result = json.loads(first.stdout)
    assert result["trajectories"]["trained"] == 3008 and result["discarded_groups"]["filtered/all-equal-0"] > 0
    assert "us a trajectory" in first.stderr


def test_all_that_is_wrong_is_said_at_once():
    done = cli(
        "recipes/toy-async.yaml", "--engines", "0", "--trajectories", "0", "--lengths", "lognormal:mu=x",
        "--like", "no", "--assume", "slotz=1", "--assume", "failed=2", "--assume", "slots=many",
        "--set", "schedule.group_sise=2",
    )  # fmt: skip
    assert done.returncode == 2 and not done.stdout
    for said in (
        "--engines: is 0", "--trajectories: is 0", "mu is 'x'", "lognormal needs sigma", "there is no run 'no'",
        "did you mean slots?", "failed is 2", "slots is 'many'", "did you mean `group_size`?",
    ):  # fmt: skip
        assert said in done.stderr, said
