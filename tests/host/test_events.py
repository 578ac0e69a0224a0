"""Event hooks: isolated, counted, timed, traced; strict on request; safe from threads and re-entry."""

import asyncio
import importlib
import inspect
import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from miles_core import PluginError, RequestError, RunError, hookspecs
from miles_core.host.activate import activate
from miles_core.host.call_trace import HookTrace
from miles_core.host.decide import decide
from miles_core.host.events import EventCaller, Listener
from miles_core.host.registry import Registry
from miles_core.host.scan import InstalledPlugin, scan
from miles_core.testing.installing import SitePackages

SEEN = "from miles_core import hookimpl\nseen = []\n@hookimpl\ndef miles_step_finished(step, run):\n    "
ONE = InstalledPlugin("one", "miles-plugin-one", "1.0", "m")
TWO = InstalledPlugin("two", "miles-plugin-two", "1.0", "m")


def opened(*names: str) -> Registry:
    index = scan()
    registry, problems = activate(index, decide(index, names))
    assert not problems
    return registry


def seen(name: str) -> list[Any]:
    found: list[Any] = importlib.import_module(f"miles_plugin_{name}").seen
    return found


def emit(registry: Registry, step: int) -> None:
    registry.emit("step_finished", run="r", step=step, metrics={"a": 1.0})


RAISING = [
    "raise RuntimeError('boom')",
    "raise SystemExit(0)",
    "raise type('B', (BaseException,), {})()",
    "import asyncio; raise asyncio.CancelledError",
    "raise GeneratorExit",
]


@pytest.mark.parametrize("raising", RAISING)
def test_one_that_raises_is_named_and_counted_and_the_others_go_on(
    site: SitePackages, caplog: pytest.LogCaptureFixture, raising: str
) -> None:
    site.plugin("a", SEEN + "seen.append((run, step))")
    site.plugin("bad", SEEN + raising, "0.3")
    site.plugin("c", SEEN + "seen.append((run, step))")
    registry = opened("a", "bad", "c")
    with caplog.at_level(logging.ERROR, "miles.plugins"):
        emit(registry, 0)
        emit(registry, 1)
    assert seen("a") == seen("c") == [("r", 0), ("r", 1)]
    assert len(caplog.records) == 2
    text = caplog.records[-1].getMessage()
    assert "plugin bad (miles-plugin-bad 0.3) failed in miles_step_finished" in text
    assert "miles_plugin_bad.py:5" in text and "failure 2" in text
    use = {each.plugin.name: each for each in registry.summary()}
    assert (use["bad"].calls, use["bad"].failures, use["a"].failures) == (2, 2, 0)


def test_a_plugin_that_fails_all_the_time_does_not_fill_the_log(
    site: SitePackages, caplog: pytest.LogCaptureFixture
) -> None:
    site.plugin("bad", SEEN + "raise RuntimeError('boom')")
    registry = opened("bad")
    for step in range(20):
        emit(registry, step)
    assert len(caplog.records) == 3
    assert "further ones are only counted" in caplog.records[-1].getMessage()
    assert registry.summary()[0].to_json() | {"seconds": 0} == {
        "name": "bad",
        "distribution": "miles-plugin-bad",
        "version": "1.0",
        "calls": 20,
        "failures": 20,
        "seconds": 0,
        "last_error": "RuntimeError: boom",
    }


def test_seconds_are_counted_for_each_plugin(site: SitePackages) -> None:
    site.plugin("slow", "import time\n" + SEEN + "time.sleep(0.02)")
    site.plugin("quick", SEEN + "pass")
    registry = opened("slow", "quick")
    emit(registry, 0)
    use = {each.plugin.name: each.seconds for each in registry.summary()}
    assert use["slow"] >= 0.02 > use["quick"]


def test_ctrl_c_passes(site: SitePackages) -> None:
    site.plugin("stop", SEEN + "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        emit(opened("stop"), 0)


def test_a_listener_that_returns_a_coroutine_has_failed(site: SitePackages) -> None:
    site.plugin("late", SEEN + "return later()\nasync def later(): seen.append('never')")
    registry = opened("late")
    emit(registry, 0)
    assert "which nobody awaits" in registry.summary()[0].last_error


def test_an_unknown_event_and_a_missing_fact_are_faults_of_the_caller() -> None:
    registry = opened()
    with pytest.raises(KeyError):
        registry.emit("step_finnished", run="r")
    with pytest.raises(KeyError, match="metrics"):
        registry.emit("step_finished", run="r", step=0)


def test_every_event_of_the_hookspecs_can_be_emitted(site: SitePackages) -> None:
    names = [name.removeprefix("miles_") for name in vars(hookspecs) if name.startswith("miles_")]
    registration = {*hookspecs.HOOK_OF_KIND.values(), "miles_hookspecs"}
    events = [name for name in names if f"miles_{name}" not in registration]
    assert sorted(events) == sorted(opened().events)
    arguments = {name: ", ".join(inspect.signature(getattr(hookspecs, f"miles_{name}")).parameters) for name in events}
    body = "".join(f"@hookimpl\ndef miles_{name}({arguments[name]}):\n    seen.append({name!r})\n" for name in events)
    site.plugin("all", "from miles_core import hookimpl\nseen = []\n" + body)
    registry = opened("all")
    for name in events:
        registry.emit(name, **dict.fromkeys(registry.events[name], Path()))
    assert seen("all") == events


def test_the_order_is_that_of_enabling_unless_a_mark_says_first_or_last(site: SitePackages) -> None:
    body = "from miles_core import hookimpl\nimport shared_seen\n@hookimpl{}\ndef miles_step_finished():\n    "
    site.module("shared_seen", "seen = []")
    marks = {"last": "(trylast=True)", "a": "", "b": "", "first": "(tryfirst=True)"}
    for name, mark in marks.items():
        site.plugin(name, body.format(mark) + f"shared_seen.seen.append({name!r})")
    emit(opened("last", "b", "a", "first"), 0)
    assert importlib.import_module("shared_seen").seen == ["first", "b", "a", "last"]


def test_strict_raises_the_first_failure_after_all_were_told(site: SitePackages) -> None:
    site.plugin("bad", SEEN + "raise ValueError('no')", "0.3")
    site.plugin("worse", SEEN + "raise ValueError('not either')")
    site.plugin("c", SEEN + "seen.append(step)")
    registry = opened("bad", "worse", "c")
    registry.watch(strict=True)
    with pytest.raises(PluginError) as caught:
        emit(registry, 0)
    (problem,) = caught.value.problems
    assert problem.what == "plugin bad (miles-plugin-bad 0.3) failed in miles_step_finished: ValueError: no"
    assert problem.where.endswith("miles_plugin_bad.py:5") and "--strict-plugins" in problem.mend
    emit(registry, 1)  # the run is ending: what it still reports is only counted
    assert seen("c") == [0, 1] and [use.failures for use in registry.summary()] == [2, 2, 0]


def test_every_call_is_traced_with_its_outcome(site: SitePackages, tmp_path: Path) -> None:
    rewards = "@hookimpl\ndef miles_rewards(): return []\n"
    site.plugin("good", SEEN + "pass\n" + rewards)
    site.plugin("bad", SEEN + "raise ValueError('no')")
    registry = opened("good", "bad")
    trace = HookTrace(tmp_path / "trace.jsonl")
    registry.watch(trace=trace)
    emit(registry, 0)
    trace.close()
    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    mine = [line for line in lines if line["plugin"] != "core"]
    assert [(each["hook"], each["plugin"], each["outcome"]) for each in mine] == [
        ("miles_rewards", "good", "returned"),
        ("miles_step_finished", "good", "returned"),
        ("miles_step_finished", "bad", "raised"),
    ]
    assert mine[2]["error"] == "ValueError: no" and all(line["ms"] >= 0 for line in lines)
    assert any(line["hook"] == "miles_generators" for line in lines)
    with pytest.raises(RequestError, match="cannot be written"):
        HookTrace(tmp_path)


def caller(**listeners: Any) -> EventCaller:
    """An event caller of two events, `a` and `b`, with a fact each."""
    made = {name: [Listener(ONE, function, ("n",))] for name, function in listeners.items()}
    return EventCaller({"a": ("n",), "b": ("n",)}, made, patience=0.2)


def test_threads_wait_for_each_other_and_nothing_is_lost() -> None:
    inside = worst = 0

    def slow(n: int) -> None:
        nonlocal inside, worst
        inside += 1
        worst = max(worst, inside)
        threading.Event().wait(0.001)
        inside -= 1

    events = caller(a=slow)
    events._patience = 60.0

    def report() -> None:
        for n in range(10):
            events.emit("a", n=n)

    threads = [threading.Thread(target=report) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (use,) = events.summary()
    assert (worst, use.calls, use.failures) == (1, 40, 0)


def test_a_listener_that_waits_for_a_thread_that_reports_is_refused_and_not_a_hang() -> None:
    raised: list[BaseException] = []

    def report() -> None:
        try:
            events.emit("b", n=1)
        except RunError as error:
            raised.append(error)

    def wait_for_it(n: int) -> None:
        thread = threading.Thread(target=report)
        thread.start()
        thread.join()

    events = caller(a=wait_for_it, b=lambda n: None)
    events.emit("a", n=1)
    assert "event b waited 0.2 s for a listener of a" in str(raised[0])
    events.emit("b", n=1)


def test_a_listener_may_report_another_event_but_not_its_own() -> None:
    told: list[str] = []

    def first(n: int) -> None:
        told.append("a")
        events.emit("b", n=n)

    def second(n: int) -> None:
        told.append("b")
        events.emit("a", n=n)

    events = caller(a=first, b=second)
    events.emit("a", n=1)
    assert told == ["a", "b"]
    (use,) = events.summary()
    assert (use.calls, use.failures) == (2, 1)
    assert "event a is being told: a listener must not report it again" in use.last_error
    events.emit("a", n=2)
    assert told == ["a", "b"] * 2


def test_strict_blames_the_listener_that_failed_and_not_the_one_that_reported() -> None:
    def reports(n: int) -> None:
        events.emit("b", n=n)

    def fails(n: int) -> None:
        raise ValueError("mine")

    listeners = {"a": [Listener(ONE, reports, ("n",))], "b": [Listener(TWO, fails, ("n",))]}
    events = EventCaller({"a": ("n",), "b": ("n",)}, listeners)
    events.strict = True
    with pytest.raises(PluginError, match=r"plugin two .* failed in miles_b: ValueError: mine"):
        events.emit("a", n=1)
    assert [(use.plugin.name, use.failures) for use in events.summary()] == [("one", 0), ("two", 1)]


async def test_events_reported_while_other_tasks_run_stay_whole() -> None:
    order: list[int] = []

    async def report(n: int) -> None:
        await asyncio.sleep(0)
        events.emit("a", n=n)

    events = caller(a=order.append)
    events._listeners["a"] = (Listener(ONE, lambda n: order.append(n), ("n",)),)
    await asyncio.gather(*(report(n) for n in range(5)))
    assert order == [0, 1, 2, 3, 4]
