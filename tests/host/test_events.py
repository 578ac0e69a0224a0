"""Event hooks: isolated, counted, timed."""

import asyncio
import inspect
import logging
from pathlib import Path

import pytest

from miles_core import hookspecs
from miles_core.host.activate import activate
from miles_core.host.decide import decide
from miles_core.host.events import EVENTS
from miles_core.host.registry import Registry
from miles_core.host.scan import scan
from miles_core.testing.installing import SitePackages

SEEN = "from miles_core import hookimpl\nseen = []\n@hookimpl\ndef miles_step_finished(step, run):\n    "


def opened(*names: str) -> Registry:
    index = scan()
    registry, problems = activate(index, decide(index, names))
    assert not problems
    return registry


def seen(name: str) -> list[object]:
    import importlib

    return importlib.import_module(f"miles_plugin_{name}").seen  # type: ignore[no-any-return]


def emit(registry: Registry, step: int) -> None:
    registry.emit("step_finished", run="r", step=step, metrics={"a": 1.0})


@pytest.mark.parametrize(
    "raising", ["raise RuntimeError('boom')", "raise SystemExit(0)", "raise type('B', (BaseException,), {})()"]
)
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


def test_seconds_are_counted_for_each_plugin(site: SitePackages) -> None:
    site.plugin("slow", "import time\n" + SEEN + "time.sleep(0.02)")
    site.plugin("quick", SEEN + "pass")
    registry = opened("slow", "quick")
    emit(registry, 0)
    use = {each.plugin.name: each.seconds for each in registry.summary()}
    assert use["slow"] >= 0.02 > use["quick"]


def test_cancelling_and_interrupting_pass(site: SitePackages) -> None:
    site.plugin("stop", "import asyncio\n" + SEEN + "raise (KeyboardInterrupt if step else asyncio.CancelledError)")
    registry = opened("stop")
    with pytest.raises(asyncio.CancelledError):
        emit(registry, 0)
    with pytest.raises(KeyboardInterrupt):
        emit(registry, 1)


def test_an_unknown_event_and_a_missing_fact_are_faults_of_the_caller() -> None:
    registry = opened()
    with pytest.raises(KeyError):
        registry.emit("step_finnished", run="r")
    with pytest.raises(KeyError, match="metrics"):
        registry.emit("step_finished", run="r", step=0)


def test_every_event_of_the_hookspecs_can_be_emitted(site: SitePackages) -> None:
    names = [name.removeprefix("miles_") for name in vars(hookspecs) if name.startswith("miles_")]
    events = [name for name in names if f"miles_{name}" not in hookspecs.HOOK_OF_KIND.values()]
    assert sorted(events) == sorted(EVENTS)
    arguments = {name: ", ".join(inspect.signature(getattr(hookspecs, f"miles_{name}")).parameters) for name in events}
    body = "".join(f"@hookimpl\ndef miles_{name}({arguments[name]}):\n    seen.append({name!r})\n" for name in events)
    site.plugin("all", "from miles_core import hookimpl\nseen = []\n" + body)
    registry = opened("all")
    for name in events:
        registry.emit(name, **dict.fromkeys(EVENTS[name], Path()))
    assert seen("all") == events
