"""Whole runs of the toy ring through the Python API."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from miles_core import Disposition, MilesError, PluginError, RequestError, RunError, resume, run
from miles_core.observe import jsonl
from miles_core.observe.trajectories import read_groups


def deterministic(metrics: list[dict]) -> list[dict]:
    """Without what depends on time, and on how many engines there are."""
    return [{k: v for k, v in record.items() if not k.startswith(("time/", "engine/engine-"))} for record in metrics]


def test_a_run_learns_and_leaves_everything_in_its_folder(bench):
    done = run(bench.recipe(), runs_dir=bench.runs, view="none")
    held_out = done.summary["evaluations"]["held-out"]
    assert (held_out["before"], held_out["after"], held_out["n"]) == (0.0, 1.0, 8)
    assert (held_out["first_version"], held_out["last_version"]) == (1, 7)
    for name in ("recipe.yaml", "plugins.lock", "metrics.jsonl", "events.jsonl", "run.json", "report.html"):
        assert (done.folder.path / name).stat().st_size > 0, name
    assert [record["step"] for record in done.metrics] == list(range(6))
    assert [record["version"] for record in done.metrics] == list(range(1, 7))
    assert sorted(p.name for p in done.folder.checkpoints.iterdir()) == ["step-000004", "step-000006"]
    assert json.loads(done.folder.status.read_text())["state"] == "done"


def test_every_trajectory_ends_in_one_disposition(bench):
    done = run(bench.recipe(), runs_dir=bench.runs, view="none")
    counted: Counter[Disposition] = Counter()
    for _, group, dispositions in read_groups(done.folder.trajectories):
        assert set(dispositions) == {t.id for t in group.trajectories}
        counted.update(dispositions.values())
        for trajectory in group.trajectories:
            for sequence in trajectory.sequences:
                assert sequence.sampled_count > 0
    assert counted[Disposition.TRAINED] == 6 * 3 * 4
    assert counted[Disposition.EVALUATION] == 3 * 8
    filtered = sum(n for r in done.metrics for name, n in r.items() if name.startswith("buffer/filtered/"))
    assert counted[Disposition.FILTERED] == filtered * 4 > 0


def test_the_same_recipe_gives_the_same_run(bench):
    first = run(bench.recipe(), runs_dir=bench.runs, view="none")
    second = run(bench.recipe(), runs_dir=bench.runs, view="none")
    in_process = run(bench.recipe(runtime={"use": "in-process"}), runs_dir=bench.runs, view="none")
    two_engines = run(bench.recipe(engine={"use": "toy", "replicas": 2}), runs_dir=bench.runs, view="none")
    other_seed = run(bench.recipe(seed=2), runs_dir=bench.runs, view="none")
    assert deterministic(first.metrics) == deterministic(second.metrics)
    assert deterministic(first.metrics) == deterministic(in_process.metrics)
    assert deterministic(first.metrics) == deterministic(two_engines.metrics)
    assert deterministic(first.metrics) != deterministic(other_seed.metrics)


def test_a_recipe_can_be_given_from_python(bench):
    done = run(bench.recipe(), steps=2, set=["schedule.group_size=2"], name="mine", runs_dir=bench.runs, view="none")
    assert done.folder.path.name.startswith("mine-")
    assert len(done.metrics) == 2
    assert {r["rollout/trajectories"] for r in done.metrics} == {6}


def test_a_run_inside_a_running_event_loop(bench):
    async def notebook() -> int:
        return len(run(bench.recipe(), steps=1, runs_dir=bench.runs, view="none").metrics)

    assert asyncio.run(notebook()) == 1


def test_rollout_only_saves_what_training_then_learns_from(bench):
    collected = run(
        bench.recipe(trainer=None, loss=None, advantage=None, evaluate=None, name="collect"),
        runs_dir=bench.runs,
        view="none",
    )
    saved = [
        g.number for _, g, d in read_groups(collected.folder.trajectories) if Disposition.FILTERED not in d.values()
    ]
    assert len(saved) == 18
    trained = run(
        bench.recipe(
            rollout={"use": "saved", "run": str(collected.folder.path)},
            engine=None,
            evaluate=None,
            filters=None,
            name="from-saved",
        ),
        runs_dir=bench.runs,
        view="none",
    )
    assert len(trained.metrics) == 6
    assert [r["rollout/groups"] for r in trained.metrics] == [3] * 6
    assert trained.metrics[-1]["trainer/grad_norm"] > 0


def test_finite_data_ends_the_run_with_what_there_was(bench):
    data = {"use": "file", "path": "tasks.jsonl", "epochs": 1}
    done = run(bench.recipe(data=data, filters=None, evaluate=None, steps=50), runs_dir=bench.runs, view="none")
    assert [r["rollout/groups"] for r in done.metrics] == [3] * 8  # 24 tasks, once
    assert any(e["event"] == "note" and "data ended" in e["text"] for e in jsonl.read(done.folder.events))


def test_a_supervised_phase_precedes_reinforcement(bench):
    phases = [
        {
            "name": "supervised",
            "steps": 3,
            "generator": {"use": "demonstration"},
            "schedule": {"use": "sync", "groups_per_step": 4, "group_size": 1},
            "advantage": None,
            "filters": [],
        },
        {"name": "reinforcement", "steps": 2, "filters": []},
    ]
    done = run(bench.recipe(phases=phases, steps=None), runs_dir=bench.runs, view="none")
    assert [r["phase"] for r in done.metrics] == ["supervised"] * 3 + ["reinforcement"] * 2
    assert "reward/mean" not in done.metrics[0]
    # the demonstrations say "a", then stop: half of what is sampled greedily is one of them
    assert done.metrics[3]["reward/mean"] > 0.2


@pytest.mark.parametrize("name", ["broken", "nan", "text", "leaves", "cancels"])
def test_a_reward_that_fails_names_task_and_plugin(bench, name):
    with pytest.raises(PluginError, match=r"(?s)toy_rewards.*task 'p") as caught:
        run(bench.recipe(rewards=[{"use": f"toy_rewards:{name}"}], evaluate=None), runs_dir=bench.runs, view="none")
    assert caught.value.exit_code == 3
    (folder,) = bench.runs.iterdir()
    status = json.loads((folder / "run.json").read_text())
    assert status["state"] == "failed"
    assert "toy_rewards" in status["error"]


def test_a_class_that_is_no_reward_is_named_before_any_work(bench):
    with pytest.raises(PluginError, match=r"toy_rewards:Odd"):
        run(bench.recipe(rewards=[{"use": "toy_rewards:Odd"}]), runs_dir=bench.runs, view="none")
    assert not bench.runs.exists()


def test_data_that_changed_is_not_resumed(bench):
    done = run(bench.recipe(), runs_dir=bench.runs, view="none")
    done.folder.write_status(state="interrupted")
    with (bench.folder / "tasks.jsonl").open("a") as file:
        file.write('{"id": "new", "prompt": "new"}\n')
    with pytest.raises(RequestError, match=r"tasks\.jsonl.*changed"):
        resume(done.folder.path, view="none")


@pytest.mark.parametrize("damage", ["trainer", "position", "phases"])
def test_a_damaged_checkpoint_is_named(bench, damage):
    done = run(bench.recipe(), runs_dir=bench.runs, view="none")
    done.folder.write_status(state="interrupted")
    newest = done.folder.checkpoints / "step-000006"
    if damage == "trainer":
        (newest / "trainer" / "toy.json").unlink()
    else:
        state = json.loads((newest / "state.json").read_text())
        state["metrics_position" if damage == "position" else "phases"] = "x"
        (newest / "state.json").write_text(json.dumps(state))
    with pytest.raises(RequestError, match=r"step-000006"):
        resume(done.folder.path, view="none")


def test_a_failing_evaluation_is_skipped_with_its_cause(bench):
    rewards = [{"use": "toy_rewards:share_of_a"}]
    evaluate = [{"use": "shared", "tasks": 4, "score": "nonsense"}]
    done = run(bench.recipe(rewards=rewards, evaluate=evaluate), runs_dir=bench.runs, view="none")
    assert done.summary["evaluations"]["held-out"]["skipped"] == 2
    assert "nonsense" in done.summary["evaluations"]["held-out"]["why"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": {"use": "toy", "context": 9}}, r"exceeds the context of 9.*p|max_new_tokens"),
        ({"data": {"use": "file", "path": "nowhere.jsonl"}}, r"nowhere\.jsonl"),
        ({"data": {"use": "file", "path": "tasks.jsonl"}}, r"held_out"),
    ],
)
def test_what_cannot_work_is_refused_before_any_work(bench, changes, says):
    with pytest.raises(RequestError, match=rf"(?s){says}"):
        run(bench.recipe(**changes), runs_dir=bench.runs, view="none")
    assert not bench.runs.exists()


def test_a_full_folder_or_an_unwritable_one_is_refused(bench):
    blocked = bench.folder / "blocked"
    blocked.write_text("a file, not a folder")
    with pytest.raises(RequestError, match="blocked"):
        run(bench.recipe(), runs_dir=blocked, view="none")


def test_resuming_what_is_done_is_refused_and_what_fails_again_fails_again(bench):
    done = run(bench.recipe(), runs_dir=bench.runs, view="none")
    with pytest.raises(RequestError, match="done"):
        resume(done.folder.path, view="none")
    with pytest.raises(MilesError):
        run(bench.recipe(rewards=[{"use": "toy_rewards:nan"}], evaluate=None), runs_dir=bench.runs, view="none")
    failed = next(p for p in bench.runs.iterdir() if p != done.folder.path)
    with pytest.raises(MilesError, match="nan") as caught:
        resume(failed, view="none")
    assert f"no checkpoint was saved yet; begin again with `miles resume {failed}`" in caught.value.__notes__[0]


def test_an_adaptive_schedule_that_changed_nothing_says_why(bench):
    schedule = {"use": "adaptive", "groups_per_step": 3, "group_size": 4}
    done = run(bench.recipe(schedule=schedule, steps=3, evaluate=None), runs_dir=bench.runs, view="none")
    told = [event["text"] for event in jsonl.read(done.folder.events) if event["event"] == "note"]
    assert told == ["the schedule changed nothing in phase main: fewer steps than its period of 5 were measured"]


def test_a_checkpoint_of_another_recipe_is_refused(bench):
    done = run(bench.recipe(), runs_dir=bench.runs, view="none")
    done.folder.write_status(state="interrupted")
    changed = done.folder.recipe.read_text().replace("seed: 1", "seed: 2")
    done.folder.recipe.write_text(changed)
    with pytest.raises(RequestError, match="another recipe"):
        resume(done.folder.path, view="none")


def test_another_plugin_set_is_refused(bench):
    done = run(bench.recipe(), runs_dir=bench.runs, view="none")
    done.folder.write_status(state="interrupted")
    lock = json.loads(done.folder.lock.read_text())
    lock["plugins"][1]["version"] = "9.9"
    done.folder.lock.write_text(json.dumps(lock))
    for attempt in (
        lambda: resume(done.folder.path, view="none"),
        lambda: run(bench.recipe(), locked=done.folder.lock, runs_dir=bench.runs, view="none"),
    ):
        with pytest.raises(PluginError, match=r"9\.9"):
            attempt()


def test_a_dead_engine_ends_the_run_with_its_name(bench):
    (bench.folder / "mortal.py").write_text(
        "import os\nfrom miles_core.testing.toy.engine import ToyEngine, ToyEngineOptions\n"
        "class Mortal(ToyEngine):\n"
        "    Options = ToyEngineOptions\n"
        "    async def generate(self, request):\n"
        "        if request.id.startswith('g7'): os._exit(9)\n"
        "        return await super().generate(request)\n"
    )
    with pytest.raises(RunError, match=r"engine-0.*exit status 9"):
        none = {"engine_restarts": 0, "restores": 0}
        run(bench.recipe(engine={"use": "mortal:Mortal"}, faults=none), runs_dir=bench.runs, view="none")
