"""Hook implementations that pluggy would take in silence, or refuse in words that help nobody."""

import importlib
import inspect
import pickle
import shutil
import sys

import pluggy
import pytest

from miles_core.errors import PluginError, Problem
from miles_core.host.activate import activate
from miles_core.host.decide import decide
from miles_core.host.hooks import HookManager
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
    "no prefix": (
        "@hookimpl\ndef rewards(): return []",
        "rewards is marked as a hook",
        "like the hook itself, miles_rewards",
    ),
    "decorated without wraps": (
        "def deco(f):\n    def inner(*args, **kwargs): return f(*args, **kwargs)\n    return inner\n"
        "@hookimpl\n@deco\ndef miles_step_finished(step): pass",
        "has the argument *args",
        "accepted: run, step, metrics",
    ),
    "mark lost under a decorator": (
        "def deco(f):\n    return lambda: f()\n@deco\n@hookimpl\ndef miles_rewards(): return []",
        "looks like a hook but is not marked",
        "write @miles_core.hookimpl above it",
    ),
    "mark of another project": (
        "import pluggy\nmark = pluggy.HookimplMarker('other')\n@mark\ndef miles_rewards(): return []",
        "miles_rewards is marked for project 'other'",
        "@miles_core.hookimpl",
    ),
    "specification instead of implementation": (
        "from miles_core import hookspec\n@hookspec\ndef miles_rewards(): return []",
        "miles_rewards is marked as a specification",
        "hookimpl instead of hookspec",
    ),
    "misspelt and unmarked": (
        "def miles_step_finishd(step): pass",
        "miles_step_finishd looks like a hook but is not marked",
        "did you mean miles_step_finished?",
    ),
    "asynchronous generator": (
        "@hookimpl\nasync def miles_rewards():\n    yield 1",
        "is a coroutine",
        "def instead of async def",
    ),
    "generator of an event": (
        "@hookimpl\ndef miles_step_finished(step):\n    yield step",
        "is a generator, which nobody runs",
        "without yield",
    ),
    "old wrapper": ("@hookimpl(hookwrapper=True)\ndef miles_rewards():\n    yield", "hook wrapper", "itself"),
    "a marked class": (
        "@hookimpl\nclass miles_rewards:\n    def __call__(self): return []",
        "miles_rewards is a type, which is never called",
        "mark the plain function",
    ),
    "a marked object": (
        "class Callable:\n    def __call__(self): return []\nmiles_rewards = hookimpl(Callable())",
        "miles_rewards is a Callable, which is never called",
        "mark the plain function",
    ),
    "positional only": ("@hookimpl\ndef miles_step_finished(step, /): pass", "has the argument step", "accepted"),
    "defined twice": (
        "@hookimpl\ndef miles_rewards(): return []\n\n@hookimpl\ndef miles_rewards(): return []",
        "miles_rewards is defined again; the one of line 4 is never called",
        "make one of them",
    ),
}

METHODS = {
    "unmarked override": (
        "class Base:\n    @hookimpl\n    def miles_rewards(self): return []\n"
        "class Plugin(Base):\n    def miles_rewards(self): return []",
        "miles_rewards overrides the marked one of Base but is not marked itself",
        "write @miles_core.hookimpl above it",
    ),
    "property": (
        "class Plugin:\n    @property\n    def miles_rewards(self): raise SystemExit(0)",
        "miles_rewards is a property, which is never called",
        "write a method",
    ),
    "marked property": (
        "class Plugin:\n    @property\n    @hookimpl\n    def miles_rewards(self): raise SystemExit(0)",
        "miles_rewards is a property, which is never called",
        "plain function",
    ),
    "marked cached property": (
        "class Plugin:\n    @functools.cached_property\n    @hookimpl\n    def miles_rewards(self): return exit()",
        "miles_rewards is a cached_property, which is never called",
        "plain function",
    ),
    "unknown argument of a method": (
        "class Plugin:\n    @hookimpl\n    def miles_step_finished(self, stp): pass",
        "miles_step_finished has no argument 'stp'",
        "did you mean step?",
    ),
    "defined twice in a class": (
        "class Plugin:\n    @hookimpl\n    def miles_rewards(self): return []\n"
        "    @hookimpl\n    def miles_rewards(self): return []",
        "miles_rewards is defined again; the one of line 5 is never called",
        "make one of them",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_one_fault_is_one_problem_with_its_mend(site: SitePackages, case: str) -> None:
    source, what, mend = CASES[case]
    problems = problems_of(site, source)
    assert len(problems) == 1
    assert "plugin bad (miles-plugin-bad 1.0)" in problems[0].what
    assert what in problems[0].what and mend in problems[0].mend


@pytest.mark.parametrize("case", METHODS)
def test_one_fault_of_an_instance_is_one_problem_with_its_mend(site: SitePackages, case: str) -> None:
    source, what, mend = METHODS[case]
    problems = problems_of(site, source + "\nplugin = Plugin()", "miles_plugin_bad:plugin")
    assert len(problems) == 1
    assert what in problems[0].what and mend in problems[0].mend
    assert ".py:" in problems[0].where


FINE = {
    "decorated with wraps": (
        "def deco(f):\n    @functools.wraps(f)\n    def inner(*a, **k): return f(*a, **k)\n    return inner\n"
        "@hookimpl\n@deco\ndef miles_step_finished(step): pass",
        "miles_plugin_bad",
    ),
    "a lambda": ("miles_rewards = hookimpl(lambda: [])", "miles_plugin_bad"),
    "a generator that registers": (
        "@hookimpl\ndef miles_rewards():\n    yield Component('r', 'm:R')",
        "miles_plugin_bad",
    ),
    "a bound method of another object": (
        "class Other:\n    @hookimpl\n    def miles_step_finished(self, step): pass\n"
        "miles_step_finished = Other().miles_step_finished",
        "miles_plugin_bad",
    ),
    "static, class and oddly named methods": (
        "class Plugin:\n"
        "    @staticmethod\n    @hookimpl\n    def miles_rewards(): return []\n"
        "    @classmethod\n    @hookimpl\n    def miles_losses(cls): return []\n"
        "    @hookimpl\n    def miles_step_finished(this, step): pass\n"
        "plugin = Plugin()",
        "miles_plugin_bad:plugin",
    ),
    "a mark above static": (
        "class Plugin:\n    @hookimpl\n    @staticmethod\n    def miles_rewards(): return []\nplugin = Plugin()",
        "miles_plugin_bad:plugin",
    ),
    "helpers that look a little like hooks": (
        "def miles_helper(): pass\ndef miles_step(): pass\n@hookimpl\ndef miles_rewards(): return []",
        "miles_plugin_bad",
    ),
    "an imported specification": (
        "from miles_core.hookspecs import miles_losses\n@hookimpl\ndef miles_rewards(): return []",
        "miles_plugin_bad",
    ),
}


@pytest.mark.parametrize("case", FINE)
def test_what_pluggy_calls_is_fine(site: SitePackages, case: str) -> None:
    source, value = FINE[case]
    assert problems_of(site, source, value) == ()


def test_everything_fine_is_really_called(site: SitePackages) -> None:
    source, value = FINE["static, class and oddly named methods"]
    site.module("miles_plugin_bad", HEAD + "seen = []\n" + source.replace("pass", "seen.append(step)"))
    site.distribution("miles-plugin-bad", plugins={"bad": value})
    index = scan()
    registry, _ = activate(index, decide(index, ["bad"]))
    registry.emit("step_finished", run="r", step=7, metrics={})
    assert importlib.import_module("miles_plugin_bad").seen == [7]


def test_two_entry_points_of_one_object(site: SitePackages) -> None:
    site.module("miles_plugin_bad", HEAD + "@hookimpl\ndef miles_rewards(): return []")
    site.distribution("miles-plugin-bad", plugins={"bad": "miles_plugin_bad", "worse": "miles_plugin_bad"})
    index = scan()
    (problem,) = activate(index, decide(index, ["bad", "worse"]))[1]
    assert "plugins bad (miles-plugin-bad 1.0) and worse (miles-plugin-bad 1.0) are one and the same" in problem.what


def test_an_object_that_resists_inspection_is_its_plugin_s_problem(site: SitePackages) -> None:
    source = "class Plugin:\n    def __getattribute__(self, name): raise SystemExit(0)\nplugin = Plugin()"
    (problem,) = problems_of(site, source, "miles_plugin_bad:plugin")
    assert "plugin bad" in problem.what


def test_what_pluggy_passes_over_after_all_is_named(site: SitePackages, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a later pluggy takes to ignoring, it is not silent here."""
    usual = HookManager.parse_hookimpl_opts

    def forgetful(self: HookManager, plugin: object, name: str) -> object:
        return None if name == "miles_losses" else usual(self, plugin, name)

    monkeypatch.setattr(HookManager, "parse_hookimpl_opts", forgetful)
    source = "@hookimpl\ndef miles_rewards(): return []\n@hookimpl\ndef miles_losses(): return []"
    (problem,) = problems_of(site, source)
    assert "miles_losses is marked, but pluggy" in problem.what and problem.where.endswith("miles_plugin_bad.py:5")


def test_registering_a_module_of_a_thousand_names_costs_what_its_hooks_cost(
    site: SitePackages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pluggy's own look at a name is what costs: it may look at those with our prefix only."""
    looked: list[str] = []
    usual = pluggy.PluginManager.parse_hookimpl_opts

    def counting(self: pluggy.PluginManager, plugin: object, name: str) -> object:
        looked.append(name)
        return usual(self, plugin, name)

    static: list[str] = []
    usual_static = inspect.getattr_static

    def counting_static(subject: object, name: str, *default: object) -> object:
        static.append(name)
        return usual_static(subject, name, *default)

    monkeypatch.setattr(pluggy.PluginManager, "parse_hookimpl_opts", counting)
    monkeypatch.setattr(inspect, "getattr_static", counting_static)
    names = "\n".join(f"def name_{n}(): pass" for n in range(1000))
    assert problems_of(site, names + "\n@hookimpl\ndef miles_rewards(): return []") == ()
    ours = {name for name in looked if not name.startswith("miles_")}
    assert not ours
    assert len([name for name in static if name.startswith("name_")]) == 0


def test_the_set_is_fixed_after_start_up(site: SitePackages) -> None:
    manager = HookManager()
    index = scan()
    registry, _ = activate(index, decide(index, []), manager)
    for call in (
        lambda: manager.register(object(), "late"),
        lambda: manager.unregister(name="miles-core:core"),
        lambda: manager.add_hookspecs(object()),
        lambda: manager.set_blocked("miles-core:core"),
    ):
        with pytest.raises(PluginError, match="the plugin set is fixed after start-up"):
            call()
    for subject in (manager, registry):
        with pytest.raises(TypeError, match="ComponentRefs of what is built there"):
            pickle.dumps(subject)
    assert pickle.loads(pickle.dumps(registry.ref("reward", "match", {})))


def test_capabilities_are_words_of_the_vocabulary(site: SitePackages) -> None:
    def problem(words: str) -> Problem:
        source = f"@hookimpl\ndef miles_rewards(): return [Component('r', 'm:R', capabilities={words})]"
        (found,) = problems_of(site, source)
        for file in site.folder.glob("*.dist-info"):
            shutil.rmtree(file)
        sys.modules.pop("miles_plugin_bad")
        return found

    misspelt = problem("frozenset({'needs-gpus', 'needs-advantage', 'x-mine'})")
    assert "reward 'r' declares the unknown capability 'needs-gpus'" in misspelt.what
    assert misspelt.mend == "did you mean 'needs-gpu'?" and "miles_plugin_bad.py:" in misspelt.where
    assert "your own begin x-" in problem("frozenset({'quantum'})").mend
    assert "as a text" in problem("'needs-gpu'").what


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
