"""Choosing plugins as a person does it: options, MILES_PLUGINS, miles.toml; exit codes, reasons, ways back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from miles_core.cli.guard import guarded
from miles_core.host.known_bad import KNOWN_BAD
from miles_core.observe.folder import RunFolder
from miles_core.testing.installing import SitePackages

MILES = str(Path(sys.executable).parent / "miles")

REWARD = """
from miles_core import Component, hookimpl

@hookimpl
def miles_rewards():
    return [Component("{name}", "miles_core.rollout.match_reward:MatchReward",
                      "miles_core.rollout.match_reward:MatchOptions")]
"""

RECIPE = """\
miles: 1
plugins: [toy, {plugins}]
model: {{use: toy}}
data: {{use: file, path: tasks.jsonl}}
schedule: {{use: sync, groups_per_step: 1, group_size: 2}}
generator: {{use: single-turn, sampling: {{max_new_tokens: 4}}}}
rewards: [{{use: {reward}}}]
advantage: {{use: toy}}
loss: {{use: toy}}
engine: {{use: toy}}
trainer: {{use: toy}}
runtime: {{use: in-process}}
steps: 1
"""


class Desk:
    """A working folder with a made-up site-packages; `miles` calls the command line in this process."""

    def __init__(self, folder: Path, site: SitePackages, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.site = site
        self._capture = capture

    def plugin(self, name: str, source: str = "", **metadata: Any) -> Path:
        provides = metadata.pop("provides", [f"reward.{name}"])
        return self.site.plugin(name, source or REWARD.format(name=name), provides=provides, **metadata)

    def recipe(self, plugins: str, reward: str = "match") -> str:
        (self.folder / "recipe.yaml").write_text(RECIPE.format(plugins=plugins, reward=reward))
        return "recipe.yaml"

    def miles(self, *arguments: str) -> tuple[int, str, str]:
        self._capture.readouterr()
        code = guarded(arguments)
        captured = self._capture.readouterr()
        return code, captured.out, captured.err

    def plan(self, *options: str) -> dict[str, Any]:
        code, out, err = self.miles("plan", "recipe.yaml", "--json", *options)
        assert code == 0, err
        plan: dict[str, Any] = json.loads(out)
        return plan


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Desk]:
    site = SitePackages(tmp_path / "site")
    monkeypatch.syspath_prepend(str(site.folder))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for variable in ("MILES_PLUGINS", "MILES_PLUGINS_ALLOWED"):
        monkeypatch.delenv(variable, raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    (work / "tasks.jsonl").write_text('{"prompt": "1+1", "answer": "2"}\n')
    yield Desk(work, site, capsys)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def enabled(plan: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["enabled_by"] for each in plan["plugins"]}


def test_every_source_enables_and_the_plan_says_which(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c", "d"):
        desk.plugin(name)
    desk.recipe("a")
    assert desk.miles("plugins", "enable", "b")[0] == 0
    assert enabled(desk.plan()) == {"core": "always", "toy": "recipe.yaml:2", "a": "recipe.yaml:2", "b": "miles.toml:2"}
    monkeypatch.setenv("MILES_PLUGINS", "toy,c")
    assert enabled(desk.plan("--plugin", "d")) == {
        "core": "always",
        "toy": "MILES_PLUGINS=toy,c",
        "c": "MILES_PLUGINS=toy,c",
        "d": "--plugin d",
    }
    _, out, _ = desk.miles("plan", "recipe.yaml", "--plugin", "d")
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in out.partition("values")[0].splitlines() if line}
    assert lines["d"] == "miles-plugin-d 1.0 --plugin d"
    assert lines["b"] == "miles-plugin-b 1.0 off MILES_PLUGINS=toy,c leaves out"


def test_the_resolved_recipe_lists_what_is_enabled_and_where_that_came_from(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.plugin("a")
    desk.plugin("b")
    desk.recipe("a")
    monkeypatch.setenv("MILES_PLUGINS", "no:a")
    plan = desk.plan("--plugin", "b")
    assert plan["recipe"]["plugins"] == ["toy", "b"]
    assert plan["sources"]["plugins"] == {"kind": "plugins", "where": "recipe.yaml:2, MILES_PLUGINS=no:a, --plugin b"}


WAYS = [
    (["--plugin", "no:demo"], "", "which --plugin no:demo blocks", "leave out --plugin no:demo"),
    (["--no-plugins"], "", "which --no-plugins blocks", "run without --no-plugins"),
    ([], "no:demo", "which MILES_PLUGINS=no:demo blocks", "take it out of MILES_PLUGINS"),
    ([], "toy", "which MILES_PLUGINS=toy leaves out", "add demo to MILES_PLUGINS"),
]


@pytest.mark.parametrize(("options", "environment", "says", "mend"), WAYS)
def test_a_needed_component_of_a_blocked_plugin_says_who_blocks_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, options: list[str], environment: str, says: str, mend: str
) -> None:
    desk.plugin("demo", "raise SystemExit(0)")
    if environment:
        monkeypatch.setenv("MILES_PLUGINS", environment)
    code, _, err = desk.miles("plan", desk.recipe("demo", reward="demo"), *options)
    assert code == 2 and mend in err
    assert f"recipe.yaml:7:12: rewards[0].use: reward 'demo' is provided by miles-plugin-demo 1.0, {says}" in err


def test_a_disabled_plugin_names_its_line_and_comes_back(desk: Desk) -> None:
    desk.plugin("demo")
    desk.recipe("demo", reward="demo")
    (desk.folder / "miles.toml").write_text("# mine\n[other]\nx = 1\n\n[plugins]\n")
    assert desk.miles("plugins", "disable", "Miles_Plugin.Demo")[0] == 0
    code, _, err = desk.miles("plan", "recipe.yaml")
    assert code == 2 and "which miles.toml:6 disables" in err and "miles plugins enable demo" in err
    assert enabled(desk.plan("--plugin", "demo"))["demo"] == "--plugin demo"
    assert desk.miles("plugins", "enable", "demo")[0] == 0
    assert enabled(desk.plan())["demo"] == "miles.toml:6"
    text = (desk.folder / "miles.toml").read_text()
    assert text == '# mine\n[other]\nx = 1\n\n[plugins]\nenable = ["demo"]\ndisable = []\n'


def test_the_component_of_a_blocked_plugin_that_declares_nothing_is_not_a_riddle(desk: Desk) -> None:
    desk.plugin("silent", REWARD.format(name="hidden"), provides=[])
    code, _, err = desk.miles("plan", desk.recipe("silent", reward="hidden"), "--plugin", "no:silent")
    assert code == 2 and "not enabled: silent, which --plugin no:silent blocks" in err


UNKNOWN = [
    (["--plugin", "dmeo"], None, "--plugin dmeo: plugin 'dmeo' is not installed"),
    (["--plugin", "no:dmeo"], None, "--plugin no:dmeo: plugin 'dmeo' is not installed"),
    ([], "toy,dmeo", "MILES_PLUGINS=toy,dmeo: plugin 'dmeo' is not installed"),
    ([], "no:dmeo", "MILES_PLUGINS=no:dmeo: plugin 'dmeo' is not installed"),
]


@pytest.mark.parametrize(("options", "environment", "says"), UNKNOWN)
def test_an_unknown_name_ends_with_2_and_the_nearest(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, options: list[str], environment: str | None, says: str
) -> None:
    desk.plugin("demo")
    if environment is not None:
        monkeypatch.setenv("MILES_PLUGINS", environment)
    code, out, err = desk.miles("plan", desk.recipe("toy"), *options)
    assert (code, out) == (2, "") and says in err and "did you mean 'demo'?" in err


def test_an_empty_environment_enables_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.plugin("demo")
    assert desk.miles("plugins", "enable", "demo")[0] == 0
    _, out, _ = desk.miles("plugins", "list", "--enabled", "--json")
    assert [each["name"] for each in json.loads(out)["plugins"]] == ["demo"]
    monkeypatch.setenv("MILES_PLUGINS", "")
    _, out, _ = desk.miles("plugins", "list", "--enabled", "--json")
    assert json.loads(out)["plugins"] == []


def test_why_tells_the_winner_and_the_losers(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.plugin("demo", "raise SystemExit(0)")
    desk.recipe("demo")
    desk.miles("plugins", "disable", "demo")
    monkeypatch.setenv("MILES_PLUGINS", "demo")
    options = ("plugins", "why", "demo", "--recipe", "recipe.yaml", "--plugin", "no:demo")
    code, out, err = desk.miles(*options, "--json")
    assert (code, err) == (0, "")
    (verdict,) = json.loads(out)["verdicts"]
    assert (verdict["name"], verdict["distribution"], verdict["status"]) == ("demo", "miles-plugin-demo", "disabled")
    assert [(reason["where"], reason["says"], reason["won"]) for reason in verdict["reasons"]] == [
        ("--plugin no:demo", "blocks", True),
        ("MILES_PLUGINS=demo", "enables", False),
        ("miles.toml:2", "blocks", False),
        ("recipe.yaml:2", "enables", False),
    ]
    code, out, _ = desk.miles(*options)
    assert code == 0 and [line.split()[0] for line in out.splitlines()[2:]] == ["counts", "lost", "agrees", "lost"]
    assert "miles_plugin_demo" not in sys.modules


def test_why_of_what_nobody_mentions_or_knows(desk: Desk) -> None:
    desk.plugin("demo", "raise SystemExit(0)")
    code, out, _ = desk.miles("plugins", "why", "demo")
    assert code == 0 and "demo (miles-plugin-demo 1.0) is installed" in out and "no source mentions it" in out
    code, _, err = desk.miles("plugins", "why", "dmeo")
    assert code == 2 and "did you mean 'demo'?" in err


def test_every_spelling_is_one_plugin_in_options_lock_and_blocklist(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.plugin("c")
    desk.recipe("toy")
    for spelling in ("c", "Miles.Plugin_C", "miles-plugin-c:C"):
        plugins = desk.plan("--plugin", spelling)["plugins"]
        assert [each["distribution"] for each in plugins if each["name"] == "c"] == ["miles-plugin-c"]
    monkeypatch.setitem(KNOWN_BAD, "miles-plugin-c", ("==1.0", "it lies", "https://example.org/c"))  # type: ignore[arg-type]
    code, _, err = desk.miles("plan", "recipe.yaml", "--plugin", "MILES_PLUGIN_C")
    assert code == 3 and "it lies (https://example.org/c)" in err and "Traceback" not in err


def test_two_distributions_of_one_name_are_told_apart(desk: Desk) -> None:
    for distribution in ("left-math", "right-math"):
        module = distribution.replace("-", "_")
        desk.site.module(module, REWARD.format(name=module))
        desk.site.distribution(distribution, plugins={"math": module}, provides=[f"reward.{module}"])
    code, _, err = desk.miles("plan", desk.recipe("toy"), "--plugin", "math")
    assert code == 3
    for part in ("left-math 1.0 (", "right-math 1.0 (", str(desk.site.folder), "say which: left-math:math or"):
        assert part in err
    plan = desk.plan("--plugin", "right-math:math")
    assert plan["plugins"][-1]["distribution"] == "right-math"
    assert plan["recipe"]["plugins"] == ["toy", "right-math:math"]


def test_what_does_not_fit_is_refused_before_it_is_imported(desk: Desk) -> None:
    never = "raise AssertionError('imported')"
    desk.plugin("api", never, hook_api="2.0")
    desk.plugin("needy", never, requires=["numpy>=99", "nosuch-library>=1"])
    desk.plugin("young", never, requires=["miles-core>=99"])
    code, out, err = desk.miles("plan", desk.recipe("api, needy, young"))
    assert (code, out) == (3, "") and "AssertionError" not in err
    for part in (
        "api (miles-plugin-api 1.0) was written for hook API 2.0, this host has 1.",
        "needs numpy>=99, installed is numpy ",
        "needs nosuch-library>=1, which is not installed",
        "pip install 'nosuch-library>=1'",
        "needs miles-core>=99, this is miles-core 0.",
        "4 problems",
    ):
        assert part in err
    _, out, _ = desk.miles("plugins", "why", "api", "--recipe", "recipe.yaml", "--json")
    assert json.loads(out)["verdicts"][0]["status"] == "incompatible"


def test_a_machine_with_an_allow_list_refuses_the_others(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.plugin("demo", "raise AssertionError('imported')")
    (desk.folder / "allowed.toml").write_text("[allowed]\n")
    monkeypatch.setenv("MILES_PLUGINS_ALLOWED", "allowed.toml")
    code, _, err = desk.miles("plan", desk.recipe("demo"))
    assert code == 3 and "demo (miles-plugin-demo 1.0) is not on the allow-list" in err and "AssertionError" not in err
    assert desk.miles("plan", desk.recipe("toy"))[0] == 0


def test_a_stale_egg_info_that_hides_a_plugin_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = SitePackages(desk.folder.parent / "stale")
    stale.distribution("miles-plugin-demo", "0.1", egg=True)
    monkeypatch.syspath_prepend(str(stale.folder))
    desk.plugin("demo", version="2.0")
    code, _, err = desk.miles("plan", desk.recipe("demo"))
    assert (
        code == 2 and "installed (miles-plugin-demo 2.0) but hidden by" in err and "miles_plugin_demo.egg-info" in err
    )


BROKEN: dict[str, Callable[[], str]] = {
    "exits": lambda: "raise SystemExit(0)",
    "misspelt": lambda: "def (",
    "missing": lambda: "import nosuch_module",
}


def test_the_escape_hatch_and_the_repair_work_with_broken_plugins(desk: Desk) -> None:
    for name, source in BROKEN.items():
        desk.plugin(name, source())
    (desk.folder / "miles.toml").write_text('[plugins]\nenable = ["exits", "misspelt", "missing"]\n')
    recipe = desk.recipe("exits")
    code, _, err = desk.miles("plan", recipe)
    assert code == 3 and all(f"plugin {name} (miles-plugin-{name} 1.0)" in err for name in BROKEN)
    environment = {**os.environ, "PYTHONPATH": str(desk.site.folder)}
    done = subprocess.run(
        [MILES, "run", recipe, "--no-plugins", "--plain", "--json"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    folder = RunFolder.open(Path(json.loads(done.stdout)["folder"]))
    assert "plugins:\n- toy\nmodel" in folder.recipe.read_text()
    for name in BROKEN:
        assert desk.miles("plugins", "disable", name)[0] == 0
    assert desk.miles("plan", desk.recipe("toy"))[0] == 0
    assert not [name for name in sys.modules if name.startswith("miles_plugin_") and name[13:] in BROKEN]


def test_enable_refuses_what_is_not_there_and_disable_warns(desk: Desk) -> None:
    desk.plugin("demo", "raise SystemExit(0)")
    code, _, err = desk.miles("plugins", "enable", "dmeo")
    assert code == 2 and "did you mean 'demo'?" in err and not (desk.folder / "miles.toml").exists()
    code, _, err = desk.miles("plugins", "disable", "dmeo")
    assert code == 0 and "warning: plugin 'dmeo' is not installed; did you mean 'demo'?" in err
    assert desk.miles("plan", desk.recipe("toy"))[0] == 0
    code, out, _ = desk.miles("plugins", "enable", "demo", "--json")
    assert code == 0 and json.loads(out)["changed"] is True
    assert desk.miles("plugins", "enable", "core")[0] == 2


def test_resume_uses_what_the_run_recorded_whatever_is_said_now(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.plugin("demo")
    desk.plugin("late", "raise SystemExit(0)")
    recipe = desk.recipe("toy", reward="demo")
    stop = (
        "from miles_core import hookimpl\n@hookimpl\ndef miles_checkpoint_saved(step):\n    raise KeyboardInterrupt\n"
    )
    desk.plugin("stop", stop, provides=[])
    options = ("--plugin", "demo", "--plugin", "stop", "--set", "steps=2", "--set", "checkpoint.every=1", "--plain")
    assert desk.miles("run", recipe, *options)[0] == 130
    (folder,) = (desk.folder / "runs").iterdir()
    file = desk.site.folder / "miles_plugin_stop.py"
    file.write_text(stop.replace("raise KeyboardInterrupt", "pass"))
    del sys.modules["miles_plugin_stop"]
    (desk.folder / "milesfile.py").write_text("raise SystemExit(0)")
    monkeypatch.setenv("MILES_PLUGINS", "late,no:demo")
    (desk.folder / "miles.toml").write_text('[plugins]\nenable = ["late"]\ndisable = ["demo"]\n')
    code, _, err = desk.miles("resume", str(folder), "--plain")
    assert code == 0, err


def test_a_plugin_and_its_component_are_no_research_code(desk: Desk) -> None:
    desk.plugin("keyword")
    desk.recipe("keyword", '"keyword:keyword"')
    code, _, err = desk.miles("plan", "recipe.yaml")
    assert code == 2 and "'keyword' is the plugin keyword (miles-plugin-keyword 1.0)" in err
    assert "write `use: keyword` or `use: miles-plugin-keyword:keyword`" in err


def test_a_traceback_of_a_plugin_is_shown_to_those_who_ask(desk: Desk) -> None:
    desk.plugin("demo", "def inner():\n    return {}['k']\ninner()\n")
    desk.recipe("demo", "demo")
    code, _, err = desk.miles("plan", "recipe.yaml")
    assert code == 3 and "Traceback" not in err
    _, _, err = desk.miles("plan", "recipe.yaml", "--traceback")
    assert 'miles_plugin_demo.py", line 2, in inner' in err and "KeyError: 'k'" in err


def test_a_plugin_is_found_by_what_it_provides(desk: Desk) -> None:
    desk.plugin("demo")
    code, out, err = desk.miles("plugins", "show", "reward.demo")
    assert code == 0, err
    assert "miles-plugin-demo 1.0" in out


def test_a_missing_requirement_is_one_error_with_one_mend(desk: Desk) -> None:
    desk.plugin("demo", requires=["absent-thing>=3"])
    code, _, err = desk.miles("plugins", "show", "demo")
    assert code == 3 and err.count("error:") == 1 and "pip install 'absent-thing>=3'" in err
    _, out, _ = desk.miles("plugins", "why", "demo")
    assert "demo (miles-plugin-demo 1.0) is broken" in out and "pip install 'absent-thing>=3'" in out


def test_reasons_are_one_object(desk: Desk) -> None:
    desk.plugin("demo")
    _, out, _ = desk.miles("plugins", "why", "demo", "--json")
    assert [each["name"] for each in json.loads(out)["verdicts"]] == ["demo"]
