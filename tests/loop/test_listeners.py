"""Event hooks of strangers' plugins in whole runs: counted, traced, strict, and never asked on a hot path."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from miles_core import PluginError, RequestError, resume, run
from miles_core.testing.installing import SitePackages

BAD = """
from miles_core import hookimpl

@hookimpl
def miles_step_finished(step):
    if step >= 1:
        raise ValueError("no idea")
"""

LATE = """
from miles_core import hookimpl

@hookimpl
def miles_run_finished():
    raise ValueError("late")
"""

GOOD = """
from miles_core import hookimpl
seen = []

@hookimpl
def miles_step_finished(step):
    seen.append(step)

@hookimpl
def miles_group_finished(group):
    seen.append(group)

@hookimpl
def miles_run_failed(error):
    seen.append(error)
"""

OWNER = """
from miles_core import Component, hookimpl, hookspec

class Hooks:
    @hookspec
    def miles_shout_granted(self, run, groups):
        "A grant was shouted."

@hookimpl
def miles_hookspecs():
    return [Hooks()]

@hookimpl
def miles_rollouts():
    return [Component("shout", "miles_plugin_shout_parts:Shout")]

@hookimpl
def miles_middleware():
    return [Component("counted", "miles_plugin_shout_parts:Counted")]
"""

SHOUT = """
from miles_core import GeneratorMiddleware
from miles_core.rollout.groups import GroupsOptions, GroupsRollout

class Counted(GeneratorMiddleware):
    def __init__(self, options, context):
        pass
    async def generate(self, attempt, context):
        context.events.emit("shout_granted", groups=attempt.index)
        return await self.inner.generate(attempt, context)

class Shout(GroupsRollout):
    def __init__(self, options, context):
        super().__init__(GroupsOptions(), context)
    async def start(self, context):
        context.events.emit("shout_granted", groups=3)
        await super().start(context)
"""

HEARS = """
from miles_core import hookimpl
seen = []

@hookimpl
def miles_shout_granted(run, groups):
    seen.append((run, groups))
    raise RuntimeError("too loud")
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    packages = SitePackages(tmp_path / "site")
    monkeypatch.syspath_prepend(str(packages.folder))
    packages.plugin("bad", BAD, "0.3")
    packages.plugin("good", GOOD)
    packages.plugin("shout", OWNER)
    packages.module("miles_plugin_shout_parts", SHOUT)
    packages.plugin("hears", HEARS)
    yield packages
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def recipe(bench, *plugins, **changes):
    quick = {"runtime": {"use": "in-process"}, "steps": 3, "evaluate": None}
    return bench.recipe(**{**quick, "plugins": ["toy", *plugins], **changes})


def uses(found):
    return {use["name"]: use for use in found}


def test_failures_are_in_the_summary_the_folder_and_the_report(bench, site):
    done = run(recipe(bench, "good", "bad"), runs_dir=bench.runs, view="none")
    found = uses(done.summary["plugins"])
    assert (found["bad"]["calls"], found["bad"]["failures"]) == (3, 2)
    assert found["bad"]["last_error"] == "ValueError: no idea" and found["bad"]["version"] == "0.3"
    assert found["good"]["failures"] == 0 and found["good"]["seconds"] > 0
    status = json.loads(done.folder.status.read_text())
    assert status["state"] == "done" and uses(status["plugins"])["bad"]["failures"] == 2
    report = done.folder.report.read_text()
    assert "ValueError: no idea" in report and "event hooks of" in report


def test_strict_ends_the_run_cleanly_with_the_name_of_plugin_and_hook(bench, site):
    with pytest.raises(PluginError) as caught:
        run(recipe(bench, "bad", "good"), runs_dir=bench.runs, view="none", strict_plugins=True)
    assert caught.value.exit_code == 3
    text = str(caught.value)
    assert "plugin bad (miles-plugin-bad 0.3) failed in miles_step_finished: ValueError: no idea" in text
    assert "miles_plugin_bad.py:7" in caught.value.problems[0].where
    (folder,) = bench.runs.iterdir()
    status = json.loads((folder / "run.json").read_text())
    assert status["state"] == "failed" and "ValueError: no idea" in status["error"]
    assert uses(status["plugins"])["bad"]["failures"] == 1
    good = sys.modules["miles_plugin_good"].seen
    assert good[-2] == 1 and "ValueError" in good[-1]  # told of the step, then of the end
    assert (folder / "report.html").stat().st_size > 0


def test_a_strict_run_that_stopped_is_resumed_without_strictness(bench, site):
    checkpoint = {"every": 1, "keep": 2}
    with pytest.raises(PluginError):
        run(recipe(bench, "bad", checkpoint=checkpoint), runs_dir=bench.runs, view="none", strict_plugins=True)
    (folder,) = bench.runs.iterdir()
    with pytest.raises(PluginError, match="failed in miles_step_finished"):
        resume(folder, view="none", strict_plugins=True)
    done = resume(folder, view="none")
    assert done.summary["state"] == "done" and uses(done.summary["plugins"])["bad"]["failures"] == 2


def test_a_failure_in_the_last_event_of_a_strict_run_is_a_failed_run(bench, site):
    site.plugin(
        "late", "from miles_core import hookimpl\n@hookimpl\ndef miles_run_finished(): raise ValueError('late')"
    )
    with pytest.raises(PluginError, match="failed in miles_run_finished"):
        run(recipe(bench, "late", steps=1), runs_dir=bench.runs, view="none", strict_plugins=True)
    (folder,) = bench.runs.iterdir()
    assert json.loads((folder / "run.json").read_text())["state"] == "failed"


def test_a_plugin_s_own_event_reaches_others_isolated(bench, site):
    done = run(recipe(bench, "hears", "shout", rollout={"use": "shout"}), runs_dir=bench.runs, view="none")
    assert sys.modules["miles_plugin_hears"].seen == [(done.folder.path.name, 3)]
    assert uses(done.summary["plugins"])["hears"]["failures"] == 1
    events = [json.loads(line) for line in done.folder.events.read_text().splitlines()]
    assert any(event.get("event") == "shout_granted" and event["groups"] == 3 for event in events)


def test_a_generator_may_report_its_plugin_s_own_events_too(bench, site):
    changes = {"middleware": [{"use": "counted"}], "filters": None, "steps": 1}
    done = run(recipe(bench, "hears", "shout", **changes), runs_dir=bench.runs, view="none")
    told = [groups for _, groups in sys.modules["miles_plugin_hears"].seen]
    assert len(told) == done.metrics[0]["rollout/trajectories"] and set(told) == {0, 1, 2, 3}


def miles(site, *arguments, **environment):
    """A real command of a process of its own."""
    paths = os.pathsep.join([str(site.folder), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "miles_core.cli.entry", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, **environment},
    )


def test_the_command_line_says_it_and_traces_it(bench, site):
    file = recipe(bench, "bad", steps=2)
    done = miles(site, "run", file, "--runs-dir", bench.runs, "--quiet", "--json", "--trace-plugins", "t.jsonl")
    assert done.returncode == 0, done.stderr
    assert uses(json.loads(done.stdout)["plugins"])["bad"]["failures"] == 1
    said = (
        "plugin bad (miles-plugin-bad 0.3): 1 of 2 calls of its event hooks failed, the last with ValueError: no idea"
    )
    assert said in done.stderr
    lines = [json.loads(line) for line in (bench.folder / "t.jsonl").read_text().splitlines()]
    mine = [line for line in lines if line["plugin"] == "bad"]
    assert [line["outcome"] for line in mine] == ["returned", "raised"]


def test_the_command_line_stops_when_strict(bench, site):
    file = recipe(bench, "bad", steps=2)
    strict = miles(site, "run", file, "--runs-dir", bench.runs, "--quiet", MILES_STRICT_PLUGINS="1")
    assert strict.returncode == 3 and "failed in miles_step_finished" in strict.stderr
    assert "miles resume" in strict.stderr or "no checkpoint" in strict.stderr


def test_a_trace_that_cannot_be_written_is_found_before_any_work(bench, site):
    with pytest.raises(RequestError, match="trace of plugins cannot be written"):
        run(recipe(bench), runs_dir=bench.runs, view="none", trace_plugins=bench.folder / "no" / "t.jsonl")
    assert not bench.runs.exists()


def calls_of(bench, site, tokens):
    """Every call of any hook in a run, by hook, for a listener of everything."""
    generator = {"use": "single-turn", "sampling": {"max_new_tokens": tokens}}
    trace = bench.folder / f"calls-{tokens}.jsonl"
    done = run(
        recipe(bench, "good", "bad", generator=generator, filters=None),
        runs_dir=bench.runs,
        view="none",
        trace_plugins=trace,
    )
    sampled = sum(record["rollout/tokens"] for record in done.metrics)
    return [json.loads(line)["hook"] for line in trace.read_text().splitlines()], sampled


def test_the_number_of_hook_calls_does_not_depend_on_the_number_of_tokens(bench, site):
    few, few_tokens = calls_of(bench, site, 4)
    many, many_tokens = calls_of(bench, site, 64)
    assert many_tokens > 2 * few_tokens
    assert sorted(few) == sorted(many) and few.count("miles_group_finished") == 3 * 3
