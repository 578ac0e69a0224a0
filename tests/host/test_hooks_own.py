"""Hooks that a plugin brings along, and who may implement them."""

import importlib
from collections.abc import Sequence

import pytest

from miles_core import Problem
from miles_core.host.activate import activate
from miles_core.host.decide import decide
from miles_core.host.registry import Registry
from miles_core.host.scan import scan
from miles_core.testing.installing import SitePackages

HEAD = "from miles_core import hookimpl, hookspec\nimport sys\n"
BRINGS = "@hookimpl\ndef miles_hookspecs(): return [{}]\n"
HOOKS = """
class Hooks:
    @hookspec
    def miles_tool_box_opened(self, run, tool):
        "A tool was taken out."
"""
OWNER = HEAD + HOOKS + BRINGS.format("Hooks()")
LISTENER = HEAD + "seen = []\n@hookimpl{}\ndef miles_tool_box_opened(tool): seen.append(tool)\n"


def opened(*names: str) -> tuple[Registry, tuple[Problem, ...]]:
    index = scan()
    return activate(index, decide(index, names))


def seen(name: str) -> list[object]:
    found: list[object] = importlib.import_module(f"miles_plugin_{name}").seen
    return found


@pytest.mark.parametrize("order", [("tool-box", "hears"), ("hears", "tool-box")])
def test_another_plugin_implements_it_whatever_the_order(site: SitePackages, order: Sequence[str]) -> None:
    site.plugin("tool-box", OWNER)
    site.plugin("hears", LISTENER.format(""))
    registry, problems = opened(*order)
    assert not problems
    assert registry.events["tool_box_opened"] == ("run", "tool")
    registry.emit("tool_box_opened", run="r", tool="hammer")
    assert seen("hears") == ["hammer"]


def test_a_module_may_hold_the_specifications_the_plugin_s_own_included(site: SitePackages) -> None:
    own = HEAD + "@hookspec\ndef miles_tool_box_opened(run, tool): 'Opened.'\n" + BRINGS.format("sys.modules[__name__]")
    site.plugin("tool-box", own)
    site.plugin("hears", LISTENER.format(""))
    registry, problems = opened("tool-box", "hears")
    assert not problems and "tool_box_opened" in registry.events


def test_the_set_of_events_belongs_to_the_registry(site: SitePackages) -> None:
    site.plugin("tool-box", OWNER)
    assert "tool_box_opened" in opened("tool-box")[0].events
    assert "tool_box_opened" not in opened()[0].events


REFUSED = {
    "without the prefix": (
        "class Hooks:\n    @hookspec\n    def miles_opened(self, tool): 'x'\n" + BRINGS.format("Hooks()"),
        "its own hook is named miles_opened",
        "let the name begin with miles_tool_box_",
    ),
    "no name after the prefix": (
        "class Hooks:\n    @hookspec\n    def miles_tool_box_(self): 'x'\n" + BRINGS.format("Hooks()"),
        "its own hook is named miles_tool_box_",
        "let the name begin with miles_tool_box_",
    ),
    "nothing marked": (
        "class Hooks:\n    def miles_tool_box_opened(self, tool): 'x'\n" + BRINGS.format("Hooks()"),
        "which has no hook",
        "mark its functions with @miles_core.hookspec",
    ),
    "marked as an implementation": (
        "class Hooks:\n    @hookimpl\n    def miles_tool_box_opened(self, tool): 'x'\n" + BRINGS.format("Hooks()"),
        "which has no hook",
        "@miles_core.hookspec",
    ),
    "a class": (HOOKS + BRINGS.format("Hooks"), "expected an instance or a module", "return Hooks()"),
    "text": (BRINGS.format("'hooks'"), "miles_hookspecs returns 'hooks', which has no hook", "@miles_core.hookspec"),
    "a coroutine": (
        "class Hooks:\n    @hookspec\n    async def miles_tool_box_opened(self, tool): 'x'\n"
        + BRINGS.format("Hooks()"),
        "hook miles_tool_box_opened is a coroutine",
        "def instead of async def",
    ),
    "a default": (
        "class Hooks:\n    @hookspec\n    def miles_tool_box_opened(self, tool=1): 'x'\n" + BRINGS.format("Hooks()"),
        "has the argument tool=1",
        "write the name alone",
    ),
    "first result": (
        "import pluggy\nclass Hooks:\n    @pluggy.HookspecMarker('miles')(firstresult=True)\n"
        "    def miles_tool_box_opened(self, tool): 'x'\n" + BRINGS.format("Hooks()"),
        "is marked firstresult or historic",
        "all hooks of plugins are events",
    ),
    "raises": (
        "@hookimpl\ndef miles_hookspecs(): raise SystemExit(0)\n",
        "failed in miles_hookspecs: SystemExit",
        "repair or reinstall",
    ),
    "not iterable": (
        "@hookimpl\ndef miles_hookspecs(): return 3\n",
        "miles_hookspecs returns 3, expected a list",
        "return [module]",
    ),
    "a wrong signature": (
        "@hookimpl\ndef miles_hookspecs(hooks): return []\n",
        "no argument 'hooks'",
        "accepted: none",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_anything_else_is_refused_in_plain_words_and_costs_nobody_else(site: SitePackages, case: str) -> None:
    source, what, mend = REFUSED[case]
    site.plugin("tool-box", HEAD + source)
    site.plugin("hears", LISTENER.format(""))
    registry, problems = opened("tool-box", "hears")
    assert len(problems) == 1, problems
    assert "plugin tool-box (miles-plugin-tool-box 1.0)" in problems[0].what
    assert what in problems[0].what and mend in problems[0].mend
    assert [plugin.name for plugin in registry.plugins] == ["core", "hears"]


def test_what_a_run_notes_beside_its_hooks_cannot_be_taken(site: SitePackages) -> None:
    source = "class H:\n    @hookspec\n    def miles_phase_started(self, mine): 'x'\n"
    site.plugin("phase", HEAD + source + BRINGS.format("H()"))
    (problem,) = opened("phase")[1]
    assert "hook miles_phase_started is already there, from miles-core" in problem.what


def test_a_hook_of_the_core_cannot_be_taken(site: SitePackages) -> None:
    site.plugin("run", HEAD + "class H:\n    @hookspec\n    def miles_run_started(self): 'x'\n" + BRINGS.format("H()"))
    (problem,) = opened("run")[1]
    assert "hook miles_run_started is already there, from miles-core" in problem.what


def test_two_plugins_with_one_prefix(site: SitePackages) -> None:
    site.plugin("tool-box", OWNER)
    site.module("another_box", OWNER)
    site.distribution("miles-plugin-another", plugins={"tool.box": "another_box"})
    (problem,) = opened("miles-plugin-tool-box", "miles-plugin-another")[1]
    assert "plugin tool.box (miles-plugin-another 1.0): hook miles_tool_box_opened is already there" in problem.what
    assert "from tool-box (miles-plugin-tool-box 1.0)" in problem.what


def test_who_can_do_without_the_owner_says_so(site: SitePackages) -> None:
    site.plugin("tool-box", OWNER)
    site.plugin("needs", LISTENER.format(""))
    site.plugin("hears", LISTENER.format("(optionalhook=True)"))
    registry, problems = opened("hears")
    assert not problems and [plugin.name for plugin in registry.plugins] == ["core", "hears"]
    (problem,) = opened("needs")[1]
    assert "hook miles_tool_box_opened belongs to plugin tool-box, which is not enabled" in problem.what
    assert 'add "tool-box" to plugins:, or mark it @hookimpl(optionalhook=True)' in problem.mend
    registry, problems = opened("hears", "tool-box")
    registry.emit("tool_box_opened", run="r", tool="saw")
    assert not problems and seen("hears") == ["saw"]


def test_a_misspelt_hook_is_not_optional(site: SitePackages) -> None:
    site.plugin("tool-box", OWNER)
    misspelt = LISTENER.format("(optionalhook=True)").replace("opened", "openned")
    site.plugin("hears", misspelt)
    (problem,) = opened("hears", "tool-box")[1]
    assert "there is no hook miles_tool_box_openned" in problem.what and "miles_tool_box_opened" in problem.mend
    site.plugin("core-fan", HEAD + "@hookimpl(optionalhook=True)\ndef miles_step_finnished(step): pass\n")
    (problem,) = opened("core-fan")[1]
    assert "did you mean miles_step_finished?" in problem.mend
