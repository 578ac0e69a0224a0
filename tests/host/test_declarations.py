"""What an author may get wrong in plugin.py: each mistake is told at its line, with what to write."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from miles_core.contracts.component import Component, load_attribute
from miles_core.errors import PluginError, Problem
from miles_core.host.activate import activate
from miles_core.host.decide import decide
from miles_core.host.named import fault_of_path
from miles_core.host.options_model import options_model
from miles_core.host.registry import Registry
from miles_core.host.scan import scan
from miles_core.testing.installing import SitePackages

SOURCE = """from miles_core import Component, hookimpl
class Keyword: pass
@hookimpl
def miles_rewards():
    {body}
"""


def opened(site: SitePackages, body: str) -> tuple[Registry, tuple[Problem, ...]]:
    site.plugin("keyword", SOURCE.format(body=body))
    return activate(scan(), decide(scan(), ["keyword"]))


MISTAKES = [
    ('return Component("keyword", "m:K")', 4, "returns one Component, expected a list", "return [Component(…)]"),
    ('Component("keyword", "m:K")', 4, "returns nothing, expected a list", "`return` is missing"),
    ('return {"keyword": "m:K"}', 4, "expected a list", "return [Component(…)]"),
    ('return "keyword"', 4, "returns 'keyword', expected a list", "return [Component(…)]"),
    ("return 3", 4, "returns 3, expected a list", "return [Component(…)]"),
    ("return [Keyword]", 4, "expected miles_core.Component", "factory="),
    ('return [Component("keyword", "m:K", exmaple={})]', 5, "'exmaple'", "did you mean 'example'?"),
    ('return [Component("keyword", "m:K", kind="reward")]', 5, "'kind'", "it also takes options, summary"),
    ('return [Component("keyword")]', 5, "missing 1 required positional argument: 'factory'", "module:attr"),
    ('return [Component("Key Word", "m:K")]', 5, "the name of a Component is 'Key Word'", 'Component("key-word"'),
    ('return [Component("", "m:K")]', 5, "the name of a Component is ''", "Component("),
    ('return [Component(Keyword, "m:K")]', 5, "the name of a Component is <class", 'Component("keyword"'),
    ('return [Component("keyword", Keyword)]', 5, "has the factory <class", '"miles_plugin_keyword:Keyword"'),
    ('return [Component("keyword", "a.b.C")]', 5, "has the factory 'a.b.C'", 'factory="a.b:C"'),
    ('return [Component("keyword", "a.b:C D")]', 5, "has the factory 'a.b:C D'", "module:attr"),
    ('return [Component("keyword", "m:K/L")]', 5, "has the factory 'm:K/L'", "module:attr"),
    ('return [Component("keyword", "m:K", Keyword)]', 5, "has the options <class", '"miles_plugin_keyword:Keyword"'),
    ('return [Component("keyword", "m:K", "m.O")]', 5, "has the options 'm.O'", 'options="m:O"'),
    ('return [Component("keyword", "m:K", summary=3)]', 5, "has the summary 3", "summary="),
    ('return [Component("keyword", "m:K", capabilities=3)]', 5, "has the capabilities 3", "frozenset"),
    ('return [Component("keyword", "m:K", example=[1])]', 5, "has the example [1]", "example={"),
    ('return [Component("keyword", "m:K", example={"a": Keyword})]', 5, "not JSON data", "example={"),
    ('return [Component("keyword", "m:K", capabilities={"ned-gpu"})]', 5, "unknown capability 'ned-gpu'", ""),
]


@pytest.mark.parametrize(("body", "line", "says", "mend"), MISTAKES, ids=lambda value: str(value)[:40])
def test_a_mistake_is_told_at_its_line(site: SitePackages, body: str, line: int, says: str, mend: str) -> None:
    _, problems = opened(site, body)
    [problem] = problems
    assert "plugin keyword (miles-plugin-keyword 1.0)" in problem.what and says in problem.what
    assert f"miles_plugin_keyword.py:{line}" in f"{problem.where} {problem.what}".replace("py:3", "py:4")
    assert mend in problem.mend and "reinstall" not in problem.mend


def test_all_that_is_wrong_with_a_component_is_told_at_once(site: SitePackages) -> None:
    _, problems = opened(site, 'return [Component("Key Word", Keyword, summary=3)]')
    assert len(problems) == 3


def test_a_component_knows_where_it_was_made_and_travels() -> None:
    component = Component("keyword", "m:K")
    here = f"{__file__}:"
    assert component.place.startswith(here) and replace(component, name="b").place.startswith(here)
    assert pickle.loads(pickle.dumps(component)) == component
    assert component == Component("keyword", "m:K") and "place" not in repr(component)
    with pytest.raises(PluginError, match="Key Word"):
        Component("Key Word", "m:K")


PARTS = """
import json
from miles_core import Options
try:
    import nothing_like_it
except ImportError:
    LATE = None
else:
    EARLY = None

class KeywordReward:
    def __init__(self, options, context): pass

class KeywordOptions(Options):
    words: int = 1

for LOOPED in (1,):
    pass
first, (second, *rest) = 1, (2, 3)
"""

PATHS = [
    ("miles_plugin_keyword_parts:KeywordRewards", "no 'KeywordRewards' in", "did you mean 'KeywordReward'?"),
    ("miles_plugin_keyword.prats:KeywordReward", "'miles_plugin_keyword' is a module, not a package", "correct"),
    ("miles_plugin_inner.prats:KeywordReward", "no module 'miles_plugin_inner.prats'", "'miles_plugin_inner.parts'?"),
    ("miles_plugin_nowhere:KeywordReward", "no module 'miles_plugin_nowhere'", "correct"),
    ("miles_plugin_inner.unreadable:K", "SyntaxError", "repair"),
]


@pytest.mark.parametrize(("path", "says", "mend"), PATHS)
@pytest.mark.parametrize("field", ["factory", "options"])
def test_what_a_component_names_must_be_there(site: SitePackages, path: str, says: str, mend: str, field: str) -> None:
    site.module("miles_plugin_keyword_parts", PARTS)
    site.module("miles_plugin_inner.parts", "raise SystemExit(3)")
    site.module("miles_plugin_inner.unreadable", "def (:")
    right = {"factory": "miles_plugin_keyword_parts:KeywordReward", "options": "miles_core:NoOptions"}
    text = ", ".join(f"{name}={value!r}" for name, value in {**right, field: path}.items())
    registry, problems = opened(site, f'return [Component("keyword", {text})]')
    assert not problems
    with pytest.raises(PluginError) as error:
        options_model(registry.find("reward", "keyword"))
    [problem] = error.value.problems
    assert repr(path) in problem.what and says in problem.what and mend in problem.mend
    assert "miles_plugin_keyword.py:5" in problem.where and "keyword (miles-plugin-keyword 1.0)" in problem.what


@pytest.mark.parametrize("name", ["LATE", "EARLY", "LOOPED", "first", "second", "rest", "json", "KeywordOptions.words"])
def test_whatever_binds_a_name_is_seen(site: SitePackages, name: str) -> None:
    site.module("miles_plugin_keyword_parts", PARTS)
    assert fault_of_path(f"miles_plugin_keyword_parts:{name}") is None


@pytest.mark.parametrize("source", ["from os.path import *", "def __getattr__(name): return 3", "globals()['K'] = 1"])
def test_what_only_an_import_could_tell_is_no_fault(site: SitePackages, source: str) -> None:
    site.module("miles_plugin_keyword_parts", source)
    assert fault_of_path("miles_plugin_keyword_parts:K") is None


def test_nothing_is_imported_to_look(site: SitePackages) -> None:
    site.module("miles_plugin_inner.parts.deep", "raise SystemExit(3)\nclass K: pass")
    Path(site.folder, "miles_plugin_inner", "__init__.py").write_text("raise SystemExit(3)")
    assert fault_of_path("miles_plugin_inner.parts.deep:K") is None
    assert fault_of_path("math:sqrt") is None and fault_of_path("math:sqroot") is not None


def test_every_component_here_names_what_is_there() -> None:
    from miles_core.contracts.component import KINDS
    from miles_core.host.activate import open_registry

    registry = open_registry(None)
    components: list[Any] = [each for kind in KINDS if kind != "recipe" for each in registry.components(kind)]
    assert components
    for each in components:
        assert fault_of_path(each.component.factory) is None, each.component.factory
        assert fault_of_path(each.component.options) is None, each.component.options


def test_an_attribute_that_is_not_there_is_told_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"no 'Componnent' in .*; did you mean 'Component'"):
        load_attribute("miles_core.contracts.component:Componnent")
