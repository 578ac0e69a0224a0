"""A plugin of the tests' own beside the installed toy plugin, and a folder to write recipes in."""

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from miles_core.host.registry import Registry
from miles_core.recipe.plan import load_plan
from miles_core.recipe.resolved import Plan
from miles_core.testing.installing import SitePackages

LAB = """
from miles_core import Component, hookimpl

@hookimpl
def miles_losses():
    return [Component("deep", "miles_plugin_lab_parts:Any", "miles_plugin_lab_options:Deep",
                      capabilities=frozenset({"needs-advantage"}))]

@hookimpl
def miles_advantages():
    return [Component("paired", "miles_plugin_lab_parts:Any", "miles_plugin_lab_options:Paired")]

@hookimpl
def miles_trackers():
    return [Component("heavy", "miles_plugin_lab_heavy:Any")]
"""

OPTIONS = """
from enum import Enum
from pathlib import Path
from typing import Literal
from pydantic import Field
from miles_core import Options

class Level(Enum):
    TOKEN = "token"
    SEQUENCE = "sequence"

class Five(Options):
    limit: int = 3
    estimator: Literal["k1", "k2", "k3"] = "k3"

class Four(Options):
    five: tuple[Five, ...] = ()
    named: dict[str, Five] = {}

class Three(Options):
    four: Four = Four()

class Two(Options):
    three: Three | None = None
    bounds: tuple[float, float] | float = 1.0

class Deep(Options):
    two: Two = Two()
    level: Level = Level.TOKEN
    file: Path | None = None
    flag: bool = False

class Paired(Options):
    scale: float = Field(default=1.0, allow_inf_nan=True)

    def card(self):
        return {"scale": f"times {self.scale}"}

    def check(self, facts):
        if facts.group_size % 2:
            yield f"pairs need an even group_size, not {facts.group_size}"
        if facts.chosen["engine"] == ("toy",) and facts.model.context < 9:
            yield "too little context"
"""

ODD = """
from miles_core import Component, hookimpl

options = 3
odd = None

@hookimpl
def miles_trackers():
    return [Component("odd", "miles_plugin_odd:odd", "miles_plugin_odd:options")]
"""

RECIPE = """
miles: 1
seed: 7
plugins: [toy, lab]
model: {use: toy}
data: {use: file, path: tasks.jsonl}
schedule: {use: sync, groups_per_step: 3, group_size: 4}
generator: {use: single-turn, sampling: {max_new_tokens: 8}}
rewards: [{use: match}]
advantage: {use: paired}
loss: {use: deep}
engine: {use: toy}
trainer: {use: toy}
evaluate: [{use: shared, every: 5, tasks: 16}]
steps: 6
"""


class Kitchen:
    """Writes recipes and plans them."""

    def __init__(self, folder: Path, site: SitePackages) -> None:
        self.folder = folder
        self.site = site

    def write(self, text: str = RECIPE, name: str = "recipe.yaml") -> Path:
        file = self.folder / name
        file.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
        return file

    def without(self, *sections: str) -> str:
        """The recipe without some of its lines."""
        return "\n".join(line for line in RECIPE.splitlines() if line.partition(":")[0] not in sections)

    def changed(self, **sections: str) -> str:
        """The recipe with some of its lines written anew."""
        kept = self.without(*sections)
        return kept + "".join(f"\n{name}: {text}" for name, text in sections.items()) + "\n"

    def plan(self, text: str = RECIPE, *overrides: str) -> Plan:
        return self.load(text, *overrides)[0]

    def add_odd_plugin(self) -> None:
        """A plugin whose component names something that is no options model."""
        self.site.plugin("odd", ODD)

    def load(self, text: str = RECIPE, *overrides: str) -> tuple[Plan, Registry]:
        return load_plan(self.write(text), overrides)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SitePackages]:
    packages = SitePackages(tmp_path / "site")
    monkeypatch.syspath_prepend(str(packages.folder))
    monkeypatch.setattr(sys, "path", list(sys.path))  # research code adds folders
    yield packages
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def kitchen(tmp_path: Path, site: SitePackages, monkeypatch: pytest.MonkeyPatch) -> Kitchen:
    site.plugin("lab", LAB, "0.4", provides=["loss.deep", "advantage.paired", "tracker.heavy"])
    site.module("miles_plugin_lab_options", OPTIONS)
    site.module("miles_plugin_lab_parts", "Any = None")
    site.module("miles_plugin_lab_heavy", "Any = None\nraise ImportError('a component was built')")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return Kitchen(work, site)


@pytest.fixture
def recipe() -> dict[str, Any]:
    """The same recipe as a mapping."""
    from miles_core.recipe.yaml_text import parse

    data: dict[str, Any] = parse(RECIPE, "recipe")[0]
    return data
