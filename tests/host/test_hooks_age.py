"""What hooks say of themselves: since when, what goes away, and examples that run."""

import inspect
import re
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from miles_core import Deprecated, MilesDeprecationWarning, hookimpl, hookspecs
from miles_core.contracts.capabilities import CAPABILITIES
from miles_core.contracts.component import KINDS
from miles_core.host.activate import activate
from miles_core.host.decide import decide
from miles_core.host.hooks import HookManager
from miles_core.host.registry import Registry
from miles_core.host.scan import scan
from miles_core.host.specs import REGISTRATION, read_specs
from miles_core.testing.installing import SitePackages

SPECS = {spec.name: spec for spec in read_specs(hookspecs)}

FACTS: dict[str, Any] = {
    "run": "r-1", "folder": Path("runs/r-1"), "recipe": {"seed": 3}, "group": "g0", "task": "t0",
    "disposition": "equal", "reward": 0.5, "step": 1, "metrics": {"time/step": 0.25}, "version": 2, "seconds": 0.5,
    "name": "held-out",
    "score": None, "skipped": "no engine", "steps": 12, "error": "a disk is full", "interrupted": False,
    "tool": "search",
}  # fmt: skip


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def example_of(name: str) -> str:
    """The indented block of a hook's text."""
    text = inspect.getdoc(getattr(hookspecs, name)) or ""
    lines = [line[4:] for line in text.splitlines() if line.startswith("    ") or not line]
    return "\n".join(lines).strip() + "\n"


def test_every_kind_has_its_hook_and_every_hook_is_on_a_page() -> None:
    assert tuple(hookspecs.HOOK_OF_KIND) == KINDS
    assert set(REGISTRATION) <= set(SPECS)
    pages = Path(hookspecs.__file__).parent.glob("*.py")
    written = re.findall(r"^def (miles_\w+)", "\n".join(page.read_text() for page in pages), re.MULTILINE)
    assert sorted(written) == sorted(SPECS) == sorted(name for name in hookspecs.__all__ if name.startswith("miles_"))


@pytest.mark.parametrize("name", SPECS)
def test_a_hook_s_text_says_everything(name: str) -> None:
    spec, text = SPECS[name], inspect.getdoc(getattr(hookspecs, name)) or ""
    assert version("1.0") <= version(spec.facts.since) <= version(hookspecs.HOOK_API_VERSION)
    flat = " ".join(text.split())
    assert f"Since {spec.facts.since}." in flat
    assert "Called once" in flat and "in the driver" in flat
    for argument in spec.arguments:
        if argument != "run":
            assert f"`{argument}`" in text, argument
    example = example_of(name)
    assert f"def {name}(" in example and 2 <= len(example.splitlines()) <= 9
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("name", SPECS)
def test_the_example_runs(name: str, site: SitePackages, capsys: pytest.CaptureFixture[str]) -> None:
    site.plugin("example", "from miles_core import Component, hookimpl, hookspec\n" + example_of(name))
    registry, problems = opened("example")
    assert not problems
    if name in hookspecs.HOOK_OF_KIND.values():
        (kind,) = (kind for kind, hook in hookspecs.HOOK_OF_KIND.items() if hook == name)
        mine = [each for each in registry.components(kind) if each.plugin.name == "example"]
        assert len(mine) == 1 and ":" in mine[0].component.factory
    else:
        event = "example_tool_called" if name == "miles_hookspecs" else name.removeprefix("miles_")
        registry.emit(event, **{fact: FACTS[fact] for fact in registry.events[event]})
        assert [use.failures for use in registry.summary()] in ([0], [])
        assert capsys.readouterr().out or name in ("miles_hookspecs",)


def test_every_capability_says_who_reads_it() -> None:
    for word, text in CAPABILITIES.items():
        assert (re.fullmatch(r"[a-z-]+", word) and text.endswith(("Shown", "one"))) or "Read by" in text, word


def opened(*names: str, manager: HookManager | None = None) -> tuple[Registry, Any]:
    index = scan()
    return activate(index, decide(index, names), manager)


def old_api() -> HookManager:
    """A core of another time: one hook goes away, another has an old argument, a third is gone."""
    module = types.ModuleType("old_specs")
    source = """
from miles_core import Deprecated, hookspec

@hookspec(since="0.9", deprecated=Deprecated("1.1", "implement miles_step_finished", "2.0"))
def miles_batch_done(run, step): "Old."

@hookspec(since="1.0", arguments={"count": Deprecated("1.1", "ask for `steps`", "2.0")})
def miles_phase_done(run, count, steps): "Has an old argument."
"""
    exec(source, vars(module))
    return HookManager(module, removed={"miles_epoch_done": Deprecated("0.8", "implement miles_phase_done", "1.0")})


@pytest.fixture
def heard() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def test_a_plugin_hears_once_of_everything_deprecated_that_it_uses(
    site: SitePackages, heard: list[warnings.WarningMessage]
) -> None:
    source = "from miles_core import hookimpl\n@hookimpl\ndef miles_batch_done(step): pass\n"
    site.plugin("old", source + "@hookimpl\ndef miles_phase_done(count): pass\n", "0.7")
    site.plugin("new", "from miles_core import hookimpl\n@hookimpl\ndef miles_phase_done(steps): pass\n")
    registry, problems = opened("old", "new", manager=old_api())
    assert not problems
    mine = [each for each in heard if issubclass(each.category, MilesDeprecationWarning)]
    assert len(mine) == 1
    text = str(mine[0].message)
    assert text.startswith("plugin old (miles-plugin-old 0.7): miles_batch_done is deprecated since hook API 1.1")
    assert "will be removed in 2.0: implement miles_step_finished" in text
    assert "argument count of miles_phase_done is deprecated" in text and "ask for `steps`" in text
    assert mine[0].filename.endswith("miles_plugin_old.py") and mine[0].lineno == 2
    registry.emit("batch_done", run="r", step=1)
    assert registry.summary()[0].calls == 1


def test_a_hook_that_is_gone_says_what_to_do(site: SitePackages) -> None:
    site.plugin("ancient", "from miles_core import hookimpl\n@hookimpl\ndef miles_epoch_done(run): pass\n")
    registry, (problem,) = opened("ancient", manager=old_api())
    assert "hook miles_epoch_done was removed in hook API 1.0" in problem.what
    assert problem.mend == "implement miles_phase_done" and problem.where.endswith("miles_plugin_ancient.py:2")
    assert [plugin.name for plugin in registry.failed] == ["ancient"]


def test_the_mark_is_the_same_bare_and_called() -> None:
    bare = hookspecs.hookspec(lambda: None)
    called = hookspecs.hookspec(since="3.1")(lambda: None)
    assert hookspecs.facts_of(bare).since == "" and hookspecs.facts_of(called).since == "3.1"
    assert hookspecs.facts_of(hookimpl(lambda: None)) == hookspecs.HookFacts()
    assert "is deprecated since hook API 1 and will be removed in 2: use it" in str(Deprecated("1", "use it", "2"))
