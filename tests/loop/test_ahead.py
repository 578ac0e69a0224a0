"""Rollouts that run ahead of the trainer: whole runs of the toy ring under one-step-off and async."""

from __future__ import annotations

import json
import shutil
import time

import pytest

from miles_core import RequestError, resume, run
from miles_core.cli.guard import guarded
from miles_core.loop.audit import audit
from miles_core.observe import jsonl
from miles_core.observe.folder import RunFolder
from miles_core.observe.trajectories import read_file, read_groups
from miles_core.recipe.plan import load_plan
from tests.loop.test_interrupted import alive, checkpoint, children_of, deterministic, identity, start, wait_for

HERE = {"use": "in-process"}
UNEVEN = {"use": "toy", "seconds_per_token": 0.002}


def schedule(use: str, **options):
    return {"use": use, "groups_per_step": 3, "group_size": 4, **options}


def go(bench, **changes):
    slow_learner = {"use": "toy", "learning_rate": 10.0}  # what always succeeds would be filtered
    changes = {"engine": UNEVEN, "runtime": HERE, "trainer": slow_learner, **changes}
    return run(bench.recipe(**changes), runs_dir=bench.runs, view="none")


def proven(done):
    result = audit(done.folder)
    assert result.findings == []
    return result


def test_async_trains_as_much_and_nothing_too_old(bench):
    done = go(bench, schedule=schedule("async", max_staleness=2), steps=12)
    assert [r["rollout/groups"] for r in done.metrics] == [3] * 12
    assert [r["version"] for r in done.metrics] == list(range(1, 13))
    result = proven(done)
    assert result.phases[0].groups["trained"] == 36
    assert 1 <= result.staleness <= 2
    last = done.metrics[-1]
    for name in ("time/trainer_idle", "time/engine_idle", "time/in_flight", "buffer/queue_size", "buffer/stale"):
        assert name in last, name
    assert 0 <= last["time/trainer_idle"] <= 1 and 0 <= last["time/engine_idle"] <= 1


def test_tokens_of_one_request_carry_their_own_versions(bench):
    slow = {"use": "toy", "seconds_per_token": 0.01}
    done = go(bench, schedule=schedule("async", pause="in-place"), engine=slow, filters=None, steps=8)
    proven(done)
    sequences = [s for _, g, _ in read_groups(done.folder.trajectories) for t in g.trajectories for s in t.sequences]
    assert any(len({span.version for span in s.spans}) > 1 for s in sequences)


def test_one_step_off_is_one_version_behind_and_reproducible(bench):
    one = go(bench, schedule=schedule("one-step-off"))
    two = go(bench, schedule=schedule("one-step-off"), runtime={"use": "local"}, engine={"use": "toy", "replicas": 2})
    assert deterministic(one.folder) == deterministic(two.folder)
    assert identity(one.folder) == identity(two.folder)
    assert [r["buffer/staleness_mean"] for r in one.metrics] == [0, 1, 1, 1, 1, 1]
    assert [r["buffer/staleness_max"] for r in one.metrics] == [0, 1, 1, 1, 1, 1]
    proven(one)


def test_weights_can_be_published_less_often(bench):
    done = go(bench, schedule=schedule("async", update_every=3), steps=8, evaluate=[{"use": "shared", "tasks": 4}])
    assert [r["version"] for r in done.metrics] == [1, 1, 1, 2, 2, 2, 3, 3]
    assert done.summary["evaluations"]["held-out"]["last_version"] == 4  # the last weights are always published
    proven(done)


@pytest.mark.parametrize("use", ["sync", "one-step-off", "async"])
def test_finite_data_ends_a_run_in_every_schedule(bench, use):
    data = {"use": "file", "path": "tasks.jsonl", "epochs": 1}
    options = {"order": "submission"} if use == "async" else {}
    evaluate = [{"use": "shared", "tasks": 8}]
    held_out = {**data, "held_out": "held_out.jsonl"}
    made = {"data": held_out, "schedule": schedule(use, **options), "evaluate": evaluate}
    done = go(bench, **made, steps=50, engine={"use": "toy"})
    assert done.summary["evaluations"]["held-out"]["last_version"] == len(done.metrics) + 1
    assert json.loads(done.folder.status.read_text())["state"] == "done"
    result = proven(done)
    assert result.phases[0].submitted == 24
    assert sum(result.phases[0].groups.values()) == 24


def test_phases_may_have_schedules_of_their_own(bench):
    supervised = {
        "name": "supervised",
        "steps": 3,
        "generator": {"use": "demonstration"},
        "schedule": {"use": "async", "groups_per_step": 4, "group_size": 1},
        "advantage": None,
        "filters": [],
    }
    phases = [supervised, {"name": "reinforcement", "steps": 3, "schedule": schedule("async", max_staleness=2)}]
    done = go(bench, phases=phases, steps=None, schedule=schedule("sync"))
    assert [r["phase"] for r in done.metrics] == ["supervised"] * 3 + ["reinforcement"] * 3
    result = proven(done)
    assert [phase.groups["trained"] for phase in result.phases] == [12, 9]


def test_aborted_requests_cost_their_group_and_its_task_comes_back(bench):
    slow = {"use": "toy", "seconds_per_token": 0.01}
    buffer = {"use": "fifo", "recycle": ["aborted"], "recycle_times": 100}
    done = go(bench, schedule=schedule("async", pause="abort"), buffer=buffer, filters=None, engine=slow, steps=4)
    result = proven(done)
    assert result.phases[0].groups["aborted"] > 0
    assert sum(r["buffer/aborted"] for r in done.metrics) == result.phases[0].groups["aborted"]
    outcomes: dict[tuple, list[tuple]] = {}
    for _, group, dispositions in read_groups(done.folder.trajectories):
        if group.trajectories[0].id.startswith("g"):
            outcomes.setdefault((group.task.id, group.draw), []).append((group.number, *set(dispositions.values())))
    again = [sorted(found) for found in outcomes.values() if len(found) > 1]
    assert again and all(found[0][1] == "aborted" for found in again)


@pytest.mark.parametrize("policy", ["oldest-token", "mean-version", "per-token", "resample"])
def test_every_policy_keeps_to_its_limit(bench, policy):
    done = go(
        bench,
        schedule=schedule("async", max_staleness=1, in_flight=24),
        staleness={"use": policy},
        buffer={"use": "fifo", "capacity": 1.0, "recycle": ["stale"]},
        engine={"use": "toy", "seconds_per_token": 0.004},
        filters=None,
        steps=10,
    )
    result = proven(done)
    assert result.phases[0].groups["trained"] == 30
    assert (result.staleness <= 1) or policy == "mean-version"


def test_a_killed_one_step_off_run_continues_as_if_it_had_never_stopped(bench):
    changes = {"schedule": schedule("one-step-off"), "engine": {"use": "toy", "seconds_per_token": 0.01}}
    whole = run(bench.recipe(**changes), runs_dir=bench.folder / "whole", view="none")
    resumed = kill_and_resume(bench, bench.recipe(**changes), step=2)
    assert deterministic(resumed.folder) == deterministic(whole.folder)
    assert identity(resumed.folder) == identity(whole.folder)
    proven(resumed)


def test_a_killed_async_run_loses_nothing_and_trains_nothing_twice(bench):
    recipe = bench.recipe(
        schedule=schedule("async", max_staleness=2, order="submission"),
        engine={"use": "toy", "seconds_per_token": 0.01},
        buffer={"use": "fifo", "recycle": ["stale"]},
        filters=None,
        evaluate=None,
        steps=14,
    )
    resumed = kill_and_resume(bench, recipe, step=4)
    assert [r["step"] for r in resumed.metrics] == list(range(14))
    found = [g.number for _, g, _ in read_groups(resumed.folder.trajectories)]
    assert found == sorted(found)  # batches are made of groups in the order of submission
    result = proven(resumed)
    assert result.phases[0].groups["trained"] == 42
    assert (result.phases[0].in_flight, result.phases[0].buffered, result.phases[0].unsettled) == (0, 0, 0)


def kill_and_resume(bench, recipe, step: int):
    """SIGKILL the driver somewhere after the checkpoint of `step`, audit what is left, and resume."""
    process = start(recipe)
    saved = wait_for(checkpoint(bench, step))
    time.sleep(0.1)
    workers = children_of(process.pid)
    process.kill()
    process.communicate()
    wait_for(lambda: not any(alive(pid) for pid in workers))
    (folder,) = bench.runs.iterdir()
    state = json.loads((saved / "state.json").read_text())["phases"][0]
    assert state["rollout"].get("in_flight") or state["buffer"]["waiting"]
    broken = audit(RunFolder(folder))
    assert broken.findings == []
    assert broken.state == "dead"
    return resume(folder, view="none")


def test_an_audit_says_what_is_wrong_and_where(bench, capsys):
    done = go(bench, schedule=schedule("async", max_staleness=2))
    assert guarded(["audit", str(done.folder.path)]) == 0
    assert "18 trained" in capsys.readouterr().out
    files = sorted(done.folder.trajectories.glob("step-*.parquet"))
    content = files[2].read_bytes()
    files[2].unlink()
    assert guarded(["audit", str(done.folder.path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["ok"] and told["findings"][0].keys() == {"what", "where"}
    assert any("nowhere on record" in f.what for f in audit(done.folder).findings)
    (done.folder.trajectories / "step-000099.parquet").write_bytes(files[1].read_bytes())
    files[2].write_bytes(content)
    found = audit(done.folder).findings
    assert any(f.what == "was trained twice" and "step-000099" in f.where for f in found)
    (done.folder.trajectories / "step-000099.parquet").unlink()
    lines = done.folder.metrics.read_text().splitlines()
    record = {**json.loads(lines[4]), "version": 1, "buffer/aborted": 5}
    done.folder.metrics.write_text("\n".join([*lines[:4], json.dumps(record), *lines[5:]]) + "\n")
    found = audit(done.folder).findings
    assert any("version 1 after version" in f.what and "step 3" in f.where for f in found)
    assert any("counted 5 groups as aborted" in f.what for f in found)
    assert any("when 1 was current" in f.what for f in found)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"schedule": schedule("async", max_staleness=0)}, r"max_staleness is 0.*1 or more"),
        (
            {"schedule": schedule("async", max_staleness=1, in_flight=48)},
            r"48 trajectories.*4 batches of 12.*max_staleness 1.*no more than 2.*in_flight 24 or less",
        ),
        ({"schedule": schedule("one-step-off", max_staleness=0)}, r"max_staleness is 0.*1 or more"),
        ({"schedule": schedule("async"), "buffer": {"use": "fifo", "capacity": 0.7}}, r"batch is 3 groups.*holds 2"),
        ({"schedule": schedule("async", in_flight=3)}, r"in_flight is 3 trajectories.*group of 4"),
        ({"schedule": schedule("async", in_flight=8, over_sampling=2.0)}, r"in_flight says 8.*2 x 12 = 24"),
        (
            {"schedule": schedule("async", max_staleness=2), "staleness": {"use": "per-token", "limit": 3}},
            r"limit.*is 3.*max_staleness of the schedule is 2",
        ),
        ({"staleness": {"use": "per-token"}}, r"limit"),
        (
            {"schedule": schedule("async"), "staleness": {"use": "oldest-token", "limit": 0}},
            r"staleness.limit is 0, but engines go on while weights change.*1 or more",
        ),
        ({"schedule": schedule("async", refill="group", in_flight=10)}, r"10 slots are 2 groups of 4 and 2.*8 or 12"),
        ({"schedule": schedule("one-step-off", update_every=9)}, r"update_every is 9 and there are 6 steps.*5 or less"),
        ({"schedule": schedule("one-step-off", refill="sample")}, r"refill"),
        (
            {
                "schedule": schedule("async", max_staleness=1),
                "staleness": {"use": "resample"},
                "rollout": {"use": "saved", "run": "."},
            },
            r"rollout 'saved' cannot do.*choose rollout groups",
        ),
        (
            {"schedule": schedule("async", order="submission"), "rollout": {"use": "saved", "run": "."}},
            r"numbers have gaps; choose arrival",
        ),
        ({"schedule": schedule("async", pause="sometimes")}, r"pause.*retract"),
    ],
)
def test_settings_that_contradict_are_refused_with_the_arithmetic(bench, changes, says):
    with pytest.raises(RequestError, match=rf"(?s){says}"):
        load_plan(bench.recipe(**changes))


def test_the_resolved_recipe_says_which_policy_and_limit_and_is_a_recipe_again(bench):
    done = go(bench, schedule=schedule("async", max_staleness=2), steps=1, evaluate=None)
    plan, _ = load_plan(done.folder.recipe)
    assert plan.recipe["staleness"] == {"use": "oldest-token", "limit": 2, "cancel": True}
    assert jsonl.read(done.folder.events)[-1]["event"] == "run_finished"


def test_groups_of_an_earlier_run_are_trained_under_any_schedule(bench):
    collected = go(bench, trainer=None, loss=None, advantage=None, evaluate=None, filters=None, steps=5)
    for use in ("one-step-off", "async"):
        done = go(
            bench,
            rollout={"use": "saved", "run": str(collected.folder.path)},
            engine=None,
            evaluate=None,
            filters=None,
            schedule=schedule(use),
            steps=5,
        )
        assert [r["rollout/groups"] for r in done.metrics] == [3] * 5
        assert proven(done).phases[0].groups == {"trained": 15}


def test_an_adaptive_run_says_what_it_changed_and_resumes_with_it(bench):
    recipe = bench.recipe(
        schedule=schedule("adaptive", max_staleness=3, in_flight=[4, 36], start=4, period=1, room=[3, 9]),
        engine={"use": "toy", "seconds_per_token": 0.004},
        runtime=HERE,
        filters=None,
        evaluate=None,
        checkpoint={"every": 4, "keep": 5},
        steps=8,
    )
    done = run(recipe, runs_dir=bench.runs, view="none")
    adapted = [event for event in jsonl.read(done.folder.events) if event["event"] == "schedule_adapted"]
    assert adapted and all("→" in each["what"] and "%" in each["what"] for each in adapted)
    settings = {each["step"]: each["schedule/in_flight"] for each in adapted}
    after = {record["step"] + 1: record["schedule/in_flight"] for record in done.metrics}
    assert after[1] == 4 and all(after.get(step + 1, moved) == moved for step, moved in settings.items())
    proven(done)
    saved = sorted(done.folder.checkpoints.iterdir())[0]
    state = json.loads((saved / "state.json").read_text())["phases"][0]["schedule"]
    assert state["dials"]["in_flight"] == after[5]
    for newer in sorted(done.folder.checkpoints.iterdir())[1:]:
        shutil.rmtree(newer)
    done.folder.write_status(state="failed")
    resumed = resume(done.folder.path, view="none")
    assert resumed.metrics[4]["schedule/in_flight"] == after[5]
    proven(resumed)


WASTEFUL = {
    "schedule": schedule("async", over_sampling=4.0, pause="in-place"),
    "buffer": {"use": "fifo", "capacity": 4.0, "recycle": ["stale"]},
    "engine": {"use": "toy", "seconds_per_token": 0.004},
    "generator": {"use": "single-turn", "sampling": {"max_new_tokens": 40}},
    "filters": None,
    "evaluate": None,
}
"""Far more in flight than can be trained in time."""


def test_groups_that_are_mended_survive_a_checkpoint_and_an_audit_follows_them(bench):
    policy = {"use": "resample", "limit": 1}
    done = go(bench, **WASTEFUL, staleness=policy, steps=10, checkpoint={"every": 1, "keep": 20})
    assert sum(r.get("buffer/remade", 0) for r in done.metrics) > 0
    proven(done)
    saved = sorted(done.folder.checkpoints.iterdir())
    states = [json.loads((place / "state.json").read_text())["phases"][0]["rollout"] for place in saved]
    open_ = [place for place, state in enumerate(states) if any("kept" in each for each in state.get("in_flight", ()))]
    assert open_
    for newer in saved[open_[0] + 1 :]:
        shutil.rmtree(newer)
    done.folder.write_status(state="failed")
    resumed = resume(done.folder.path, view="none")
    proven(resumed)
    groups = [group for _, group, _ in read_groups(resumed.folder.trajectories)]
    kept = [t.id for g in groups for t in g.trajectories if not t.id.startswith(f"{g.id}.")]
    assert kept and len(set(kept)) == len(kept)
    files = sorted(resumed.folder.trajectories.glob("step-*.parquet"))
    lost = next(file for file in reversed(files) if any(f"{t.id}" in kept for t in _trajectories(file)))
    lost.unlink()
    assert any("which" in finding.what or "nowhere" in finding.what for finding in audit(resumed.folder).findings)


def _trajectories(file):
    return [t for group, _ in read_file(file) for t in group.trajectories]


def test_doomed_work_is_cancelled_in_a_real_run_and_on_record(bench):
    done = go(bench, **WASTEFUL, staleness={"use": "oldest-token", "limit": 1}, steps=10)
    result = proven(done)
    cancelled = result.phases[0].groups["cancelled"]
    assert cancelled == sum(r.get("buffer/cancelled", 0) for r in done.metrics) > 0
    assert result.trajectories["cancelled"] > 0 and result.staleness <= 1
    last = [event["disposition"] for event in jsonl.read(done.folder.events) if event["event"] == "group_finished"]
    assert any("versions old when it could be trained" in each for each in last)
