"""What a plan says of evaluations, and which ones it refuses."""

from __future__ import annotations

import pytest

from miles_core.errors import RequestError
from miles_core.loop.api import run
from miles_core.recipe.plan import load_plan


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"evaluate": [{"use": "shared"}, {"use": "fleet", "name": "held-out"}]}, "second evaluation named 'held-out'"),
        ({"evaluate": [{"use": "shared", "pass_at": [4], "attempts": 2}]}, "pass@4 of 'held-out' needs as many"),
        ({"evaluate": [{"use": "command", "run": ["no-such-program"]}]}, "there is no program 'no-such-program'"),
        ({"evaluate": [{"use": "shared", "name": "a/b"}]}, "a/b"),
        ({"evaluate": [{"use": "shared", "datasets": [{"name": "x", "path": "gone.jsonl"}]}]}, "gone.jsonl"),
        ({"evaluate": [{"use": "command", "run": ["python"]}], "trainer": None, "loss": None, "advantage": None},
         "needs `trainer:`"),
        ({"evaluate": [{"use": "fleet", "replicas": 0}]}, "replicas"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused_before_any_work(bench, changes, says):
    with pytest.raises(RequestError, match=says):
        run(bench.recipe(**changes), runs_dir=bench.runs, view="none")
    assert not bench.runs.exists() or not list(bench.runs.glob("*"))


def test_the_plan_says_where_each_evaluation_runs(bench):
    evaluate = [
        {"use": "shared"},
        {"use": "shared", "name": "yielding", "on_update": "skip", "time_limit": 60},
        {"use": "fleet", "replicas": 2, "queue": 0},
        {"use": "command", "run": ["python", "x.py"]},
    ]
    plan, _ = load_plan(
        bench.recipe(evaluate=evaluate, schedule={"use": "async", "groups_per_step": 3, "group_size": 4})
    )
    where = {aspect: meaning for aspect, meaning in plan.card if aspect.endswith(": runs")}
    assert where == {
        "evaluation held-out: runs": "on the rollout's engines, beside the rollout; holds up the next update; "
        "given up after 3600 s",
        "evaluation yielding: runs": "on the rollout's engines, beside the rollout; is given up at the next update; "
        "given up after 60 s",
        "evaluation fleet: runs": "on 2 engines of its own, while training goes on; 0 may wait; given up after 3600 s",
        "evaluation command: runs": "over exported weights, while training goes on; 1 may wait; given up after 3600 s",
    }
    plan, _ = load_plan(bench.recipe(evaluate=evaluate[:1]))
    assert dict(plan.card)["evaluation held-out: runs"].startswith("on the rollout's engines; training waits")
