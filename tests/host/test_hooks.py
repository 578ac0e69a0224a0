"""Hook implementations that pluggy would take in silence, or refuse in words that help nobody."""

import pytest

from miles_core.errors import Problem
from miles_core.host.activate import activate
from miles_core.host.decide import decide
from miles_core.host.scan import scan
from miles_core.testing.installing import SitePackages

HEAD = "import functools\nfrom miles_core import Component, hookimpl\n"


def problems_of(site: SitePackages, source: str, value: str = "miles_plugin_bad") -> tuple[Problem, ...]:
    site.module("miles_plugin_bad", HEAD + source)
    site.distribution("miles-plugin-bad", plugins={"bad": value})
    index = scan()
    return activate(index, decide(index, ["bad"]))[1]


CASES = {
    "unknown hook": (
        "@hookimpl\ndef miles_rewrads(): return []",
        "no hook miles_rewrads",
        "did you mean miles_rewards?",
    ),
    "unknown argument": (
        "@hookimpl\ndef miles_step_finished(run, metrix): pass",
        "no argument 'metrix'",
        "accepted: run, step, metrics; did you mean metrics?",
    ),
    "argument where none is": ("@hookimpl\ndef miles_rewards(cfg): return []", "no argument 'cfg'", "accepted: none"),
    "no hook": ("x = 1", "implements no hook", "@miles_core.hookimpl"),
    "forgotten mark": ("def miles_rewards(): return []", "not marked", "write @miles_core.hookimpl above it"),
    "cached": ("@functools.lru_cache\n@hookimpl\ndef miles_rewards(): return []", "never called", "outermost"),
    "cached inside": ("@hookimpl\n@functools.lru_cache\ndef miles_rewards(): return []", "never called", "outermost"),
    "partial": (
        "def f(x): return []\nmiles_rewards = hookimpl(functools.partial(f, 1))",
        "is a partial, which is never called",
        "outermost",
    ),
    "coroutine": ("@hookimpl\nasync def miles_rewards(): return []", "is a coroutine", "def instead of async def"),
    "wrapper": ("@hookimpl(wrapper=True)\ndef miles_rewards(): return (yield)", "hook wrapper", "itself"),
    "star arguments": ("@hookimpl\ndef miles_rewards(*args): return []", "*args", "accepted: none"),
    "default": ("@hookimpl\ndef miles_step_finished(run, step=3): pass", "gives step a default", "write step alone"),
    "keyword only": ("@hookimpl\ndef miles_step_finished(*, step): pass", "has the argument step", "accepted: run"),
    "other name": ("@hookimpl(specname='miles_rewards')\ndef f(): return []", "f is marked as a hook", "miles_"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_fault_is_one_problem_with_its_mend(site: SitePackages, case: str) -> None:
    source, what, mend = CASES[case]
    problems = problems_of(site, source)
    assert len(problems) == 1
    assert "plugin bad (miles-plugin-bad 1.0)" in problems[0].what
    assert what in problems[0].what and mend in problems[0].mend


def test_the_place_is_file_and_line(site: SitePackages) -> None:
    (problem,) = problems_of(site, "\n\n@hookimpl\ndef miles_rewrads(): return []")
    assert problem.where.endswith("miles_plugin_bad.py:5")


def test_a_class_instead_of_an_instance(site: SitePackages) -> None:
    source = "class Plugin:\n    @hookimpl\n    def miles_rewards(self): return []"
    (problem,) = problems_of(site, source, "miles_plugin_bad:Plugin")
    assert "names the class Plugin, expected a module or an instance" in problem.what


def test_several_faults_of_one_plugin_come_together(site: SitePackages) -> None:
    source = "@hookimpl\ndef miles_rewrads(): return []\n@hookimpl\ndef miles_losses(cfg): return []"
    assert len(problems_of(site, source)) == 2


def test_a_property_is_not_run(site: SitePackages) -> None:
    source = """
class Plugin:
    @property
    def miles_trap(self): raise SystemExit(0)
    @hookimpl
    def miles_rewards(self): return []
plugin = Plugin()
"""
    assert problems_of(site, source, "miles_plugin_bad:plugin") == ()


def test_fewer_arguments_than_the_specification_are_fine(site: SitePackages) -> None:
    assert problems_of(site, "@hookimpl\ndef miles_step_finished(step): pass") == ()
