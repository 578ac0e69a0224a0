"""Guarded loading: broken plugins are named, whatever they do, and never take down a good one."""

import sys

import pytest

from miles_core.errors import PluginError, Problem, RequestError
from miles_core.host.activate import activate, open_registry
from miles_core.host.decide import decide
from miles_core.host.registry import Registry
from miles_core.host.scan import scan
from miles_core.testing.installing import SitePackages

GOOD = """
from miles_core import Component, hookimpl

@hookimpl
def miles_rewards():
    return [Component("good", factory="miles_plugin_good:Good")]
"""


def opened(*names: str) -> tuple[Registry, tuple[Problem, ...]]:
    index = scan()
    decision = decide(index, names)
    assert not decision.refusals
    return activate(index, decision)


def names(registry: Registry, kind: str) -> list[str]:
    return [each.component.name for each in registry.components(kind)]


BROKEN = {
    "module": ("import nope_mod", "ModuleNotFoundError: No module named 'nope_mod'", ":1)"),
    "exit": ("raise SystemExit(0)", "SystemExit: 0", ":1)"),
    "base": ("class Odd(BaseException): pass\n\nraise Odd('strange')", "Odd: strange", ":3)"),
    "assertion": ("assert False, 'never'", "AssertionError: never", ":1)"),
    "syntax": ("x = 1\ndef f(:\n", "SyntaxError", ":2)"),
    "deep": ("def f():\n    return {}['k']\nf()", "KeyError: 'k'", ":2)"),
    "generator": ("raise GeneratorExit", "GeneratorExit", ":1)"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_whatever_an_import_raises_is_one_problem_that_names_everything(site: SitePackages, case: str) -> None:
    source, cause, line = BROKEN[case]
    site.plugin("bad", source, "0.3.1")
    registry, problems = opened("bad")
    assert len(problems) == 1
    what = problems[0].what
    assert "plugin bad (miles-plugin-bad 0.3.1) failed to load" in what
    assert cause in what and f"miles_plugin_bad.py{line}" in what
    assert problems[0].where == "entry point miles.plugins:bad = miles_plugin_bad of miles-plugin-bad 0.3.1"
    assert problems[0].mend
    assert [each.name for each in registry.failed] == ["bad"]


def test_a_missing_dependency_says_what_to_install(site: SitePackages) -> None:
    site.plugin("bad", "import nope_mod.inner")
    _, problems = opened("bad")
    assert problems[0].mend.startswith("pip install nope-mod")


def test_a_missing_module_of_the_plugin_itself_says_to_reinstall_it(site: SitePackages) -> None:
    site.distribution("miles-plugin-bad", plugins={"bad": "miles_plugin_bad.plugin"})
    _, problems = opened("bad")
    assert "No module named 'miles_plugin_bad'" in problems[0].what
    assert problems[0].mend.startswith("reinstall miles-plugin-bad")


@pytest.mark.parametrize(
    ("value", "right"),
    [
        ("miles_plugin_bda.plugin", "`bad = miles_plugin_bad.plugin`"),
        ("miles_plugin_bad.plugni", "`bad = miles_plugin_bad.plugin`"),
        ("miles_plugin_bad.plugni:it", "`bad = miles_plugin_bad.plugin:it`"),
        ("miles_plugin_bad.other", "`bad = …` to a module that is there"),
    ],
)
def test_a_wrong_module_in_the_entry_point_gets_the_nearest(site: SitePackages, value: str, right: str) -> None:
    site.module("miles_plugin_bad.plugin", "it = 1")
    site.distribution("miles-plugin-bad", plugins={"bad": value})
    _, problems = opened("bad")
    assert right in problems[0].mend and "pyproject.toml" in problems[0].mend and "install it again" in problems[0].mend


def test_a_missing_attribute_gets_the_nearest_and_the_file(site: SitePackages) -> None:
    site.module("miles_plugin_bad", "plugin = 1")
    site.distribution("miles-plugin-bad", plugins={"bad": "miles_plugin_bad:plugni"})
    _, problems = opened("bad")
    assert "did you mean 'plugin'?" in problems[0].what and "miles_plugin_bad.py" in problems[0].what


def test_several_broken_plugins_are_reported_together_and_a_good_one_works(site: SitePackages) -> None:
    site.plugin("one", "import nope_mod")
    site.plugin("good", GOOD)
    site.plugin("two", "raise SystemExit(0)")
    registry, problems = opened("one", "good", "two")
    assert ["one" in problems[0].what, "two" in problems[1].what] == [True, True]
    assert len(problems) == 2
    assert names(registry, "reward") == sorted([*names(opened()[0], "reward"), "good"])


def test_the_persons_interrupt_passes(site: SitePackages, capsys: pytest.CaptureFixture[str]) -> None:
    site.plugin("bad", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        opened("bad")
    assert "bad (miles-plugin-bad 1.0)" in capsys.readouterr().err


def test_what_is_not_enabled_is_not_imported(site: SitePackages) -> None:
    site.plugin("good", GOOD)
    site.plugin("other", "raise SystemExit(0)")
    opened("good")
    assert "miles_plugin_good" in sys.modules and "miles_plugin_other" not in sys.modules


def test_printing_at_import_and_in_a_hook_stays_off_stdout(
    site: SitePackages, capsys: pytest.CaptureFixture[str]
) -> None:
    site.plugin("good", "print('at import')\n" + GOOD.replace("    return", "    print('in the hook')\n    return"))
    opened("good")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "at import" in captured.err and "in the hook" in captured.err


def test_an_entry_point_may_name_an_instance(site: SitePackages) -> None:
    source = GOOD.replace("@hookimpl\ndef miles_rewards():", "class P:\n  @hookimpl\n  def miles_rewards(self):")
    site.module("miles_plugin_good", source + "\nplugin = P()\n")
    site.distribution("miles-plugin-good", plugins={"good": "miles_plugin_good:plugin"})
    registry, problems = opened("good")
    assert not problems and "good" in names(registry, "reward")


def test_a_plugin_may_import_the_public_api_at_its_top(site: SitePackages) -> None:
    site.plugin("good", "from miles_core import *\nfrom miles_core import Reward, Trajectory, Sampling\n" + GOOD)
    assert not opened("good")[1]


def test_an_instance_of_a_plugin_class_and_a_module_of_the_same_name_do_not_collide(site: SitePackages) -> None:
    for distribution in ("a-math", "b-math"):
        module = distribution.replace("-", "_")
        site.module(module, GOOD)
        site.distribution(distribution, plugins={"math": module})
    registry, problems = opened("a-math", "b-math")
    assert not problems
    assert [each.qualified for each in registry.components("reward") if each.component.name == "good"] == [
        "a-math:good",
        "b-math:good",
    ]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise RuntimeError('boom')", "failed in miles_rewards: RuntimeError: boom"),
        ("raise SystemExit(0)", "failed in miles_rewards: SystemExit: 0"),
        ("return None", "miles_rewards returns nothing, expected a list"),
        ("return ['text']", "miles_rewards returns 'text', expected miles_core.Component"),
        ("return [Component('a', 'm:a'), Component('a', 'm:b')]", "registers reward 'a' twice"),
    ],
)
def test_a_registration_hook_that_misbehaves_is_named(site: SitePackages, body: str, says: str) -> None:
    site.plugin("bad", f"from miles_core import Component, hookimpl\n@hookimpl\ndef miles_rewards():\n    {body}\n")
    site.plugin("good", GOOD)
    registry, problems = opened("bad", "good")
    assert len(problems) == 1 and says in problems[0].what and "bad (miles-plugin-bad 1.0)" in problems[0].what
    assert "good" in names(registry, "reward")


def test_opening_by_name_raises_with_the_exit_code_of_the_fault(site: SitePackages) -> None:
    site.plugin("bad", "raise SystemExit(0)")
    with pytest.raises(PluginError) as broken:
        open_registry(["bad"])
    assert broken.value.exit_code == 3
    with pytest.raises(RequestError) as both:
        open_registry(["bad", "nosuch"])
    assert both.value.exit_code == 2 and len(both.value.problems) == 2


def test_opening_everything_leaves_out_what_is_broken(site: SitePackages) -> None:
    site.plugin("bad", "raise SystemExit(0)")
    site.plugin("good", GOOD)
    registry = open_registry(None, scan([str(site.folder)]))
    assert [each.name for each in registry.failed] == ["bad"]
    assert "good" in names(registry, "reward")
