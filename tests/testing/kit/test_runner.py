"""The runner: what it finds, what it says, how it ends, and what it records."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from trying import PLUGIN, find_check, try_check

from miles_core.cli.plugin_check import check_plugin
from miles_core.errors import PluginError, RequestError
from miles_core.testing.installing import SitePackages
from miles_core.testing.kit.check import Check, CheckResult, Finding, Grade
from miles_core.testing.kit.grades import Report
from miles_core.testing.kit.record import make_record
from miles_core.testing.kit.run import all_checks, check_all, examine
from miles_core.types.trajectory import Score

PLUGIN_SOURCE = """
from miles_core import Component, hookimpl

@hookimpl
def miles_rewards():
    return [Component("ones", "miles_plugin_ones.reward:Ones", summary="Always 1")]
"""
REWARD_SOURCE = """
from miles_core import Score

class Ones:
    def __init__(self, options, context):
        pass
    async def score(self, group):
        return [Score(1.0) for _ in group.trajectories]
"""


@pytest.fixture
def ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source folder of a plugin, installed by its egg-info."""
    source = SitePackages(tmp_path / "miles-plugin-ones")
    source.module("miles_plugin_ones.plugin", PLUGIN_SOURCE)
    source.module("miles_plugin_ones.reward", REWARD_SOURCE)
    source.distribution(
        "miles-plugin-ones",
        plugins={"ones": "miles_plugin_ones.plugin"},
        provides=["reward.ones"],
        requires=["miles-core>=0.1"],
        egg=True,
    )
    (source.folder / "pyproject.toml").write_text('[project]\nname = "miles-plugin-ones"\n')
    monkeypatch.syspath_prepend(str(source.folder))
    yield source.folder
    for name in [name for name in sys.modules if name.startswith("miles_plugin_ones")]:
        del sys.modules[name]


def report(*results: tuple[str, Grade, str, CheckResult, bool]) -> Report:
    findings = [
        Finding(Check(f"{kind or 'plugin'}/c{n}", kind, grade, "", lambda _: None, reduced), component, result)
        for n, (component, grade, kind, result, reduced) in enumerate(results)
    ]
    return Report(PLUGIN, ("reward.x",), tuple(findings), frozenset())


P, F, S, N = CheckResult.PASSED, CheckResult.FAILED, CheckResult.SKIPPED, CheckResult.INAPPLICABLE
B, SI, G = Grade.BRONZE, Grade.SILVER, Grade.GOLD


@pytest.mark.parametrize(
    ("bronze", "silver", "gold", "grade"),
    [
        (P, P, P, G),
        (P, P, N, G),
        (P, P, S, SI),
        (P, P, F, SI),
        (P, S, P, B),
        (P, F, F, B),
        (F, P, P, None),
        (S, P, P, None),
    ],
)
def test_the_grade_is_the_highest_whose_checks_all_passed(bronze, silver, gold, grade):
    made = report(("", B, "", bronze, False), ("", SI, "", silver, False), ("", G, "", gold, False))
    assert made.grade == grade
    assert (made.next_grade is None) == (grade is G)


@pytest.mark.parametrize(
    ("results", "level"),
    [
        ([(P, False), (P, False)], "fully-gated"),
        ([(P, False), (P, True)], "proxy-gated"),
        ([(P, False), (N, True)], "fully-gated"),
        ([(P, False), (S, False)], "not-verified"),
        ([(P, False), (F, False)], "not-verified"),
        ([(N, False)], "not-verified"),
        ([], "not-verified"),
    ],
)
def test_evidence_rests_on_behaviour_that_was_tried(results, level):
    behaviour = [("reward.x", G, "reward", result, reduced) for result, reduced in results]
    made = report(*behaviour, ("reward.x", G, "component", P, False), ("reward.x", SI, "reward", P, False))
    assert made.evidence() == {"reward.x": level}


def test_a_record_of_a_run_verifies_what_was_not_tried():
    assert Report(PLUGIN, ("engine.x",), (), frozenset({"engine.x"})).evidence() == {"engine.x": "verified"}


class Reward:
    def __init__(self, options, context):
        pass


class Hanging(Reward):
    async def score(self, group):
        await asyncio.Event().wait()


class Blocking(Reward):
    async def score(self, group):
        time.sleep(30)


class Exiting(Reward):
    async def score(self, group):
        raise SystemExit(0)


class Printing(Reward):
    async def score(self, group):
        print("noise")
        raise LookupError("no such score")


@pytest.mark.parametrize("factory", [Hanging, Blocking])
def test_what_hangs_is_a_failure_that_says_so(factory):
    started = time.monotonic()
    finding = try_check("reward/any-text", factory, seconds=0.3)
    assert finding.result is F
    assert "hangs" in finding.detail
    assert time.monotonic() - started < 10


def test_an_import_that_does_not_end_is_a_plugin_that_does_not_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    site = SitePackages(tmp_path / "site")
    monkeypatch.syspath_prepend(str(site.folder))
    site.plugin("slow", "import time\ntime.sleep(100)\n")
    with pytest.raises(PluginError, match=r"slow .*failed to load: Hung: no end after 0.5 s .*miles_plugin_slow.py:2"):
        examine("slow", seconds=0.5)


def test_whatever_is_raised_is_a_failure_with_the_place(capsys):
    assert "SystemExit" in try_check("reward/any-text", Exiting).detail
    finding = try_check("reward/any-text", Printing)
    assert "LookupError: no such score" in finding.detail
    assert f"{__file__}:" in finding.detail
    assert capsys.readouterr().out == ""


class Logging(Reward):
    async def score(self, group):
        try:
            raise LookupError("once more")
        except LookupError:
            logging.getLogger("made_up").warning("it failed", exc_info=True)
        return [Score(1.0) if self.good else "none" for _ in group.trajectories]


@pytest.mark.parametrize("good", [True, False])
def test_what_is_logged_is_shown_when_the_check_fails(good, capsys, monkeypatch):
    monkeypatch.setattr(Logging, "good", good, raising=False)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    assert try_check("reward/any-text", Logging).result is (P if good else F)
    told = capsys.readouterr().err
    assert ("LookupError: once more" in told) is not good
    assert logging.getLogger().handlers == []


def test_ctrl_c_ends_the_kit():
    class Interrupted(Reward):
        async def score(self, group):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        try_check("reward/any-text", Interrupted)


def test_a_check_works_in_a_folder_of_its_own():
    before = Path.cwd()

    def factory(options, context):
        assert Path.cwd() != before
        assert Path("tasks.jsonl").is_file()
        assert not list(context.folder.iterdir())
        raise LookupError("seen")

    assert "seen" in try_check("reward/any-text", factory).detail
    assert Path.cwd() == before


def test_every_check_has_its_own_name_and_a_sentence():
    names = [(check.id, check.run.__module__) for check in all_checks()]
    assert len(set(names)) == len(names)
    assert all(check.promise and check.id.islower() for check in all_checks())
    assert find_check("reward/any-text").kind == "reward"


def test_what_does_not_keep_its_protocol_is_not_tried_further(ones: Path):
    """An `async def` where nobody awaits would pass whatever the behaviour checks call."""
    (ones / "miles_plugin_ones" / "reward.py").write_text(REWARD_SOURCE.replace("async def", "def"))
    [examination] = examine("ones")
    found = check_all(examination)
    [failure] = [each for each in found.failures if each.component]
    assert failure.check.id == "component/keeps-the-protocol"
    assert "async def score(self, group" in failure.mend
    behaviour = [each for each in found.findings if each.check.kind == "reward"]
    assert {each.result for each in behaviour} == {S}
    assert found.evidence() == {"reward.ones": "not-verified"}
    assert not found.reaches(Grade.SILVER)


def test_codes_and_pages(ones: Path, capsys):
    assert check_plugin("ones", level="silver", record=False, as_json=False) == 0
    page = capsys.readouterr().out
    assert "grade     silver" in page
    assert "FAIL  gold    typed" in page
    assert " ok  " not in page
    assert len([line for line in page.splitlines() if line.startswith("checks ")]) == 1
    check_plugin("ones", level="silver", record=False, as_json=False, verbose=True)
    everything = capsys.readouterr().out
    assert "  ok    bronze  loads-alone" in everything
    assert "FAIL  gold    typed" in everything
    assert "gold needs: plugin/metadata-for-strangers, plugin/typed, plugin/has-tests" in page
    assert "evidence  reward.ones: fully-gated" in page


def test_what_is_not_there_or_does_not_load(ones: Path, tmp_path: Path):
    for target, words in (
        ("nothing-like-it", "not installed"),
        (str(tmp_path), "pyproject.toml"),
    ):
        with pytest.raises(RequestError, match=words):
            check_plugin(target, level=None, record=False, as_json=False)
    with pytest.raises(RequestError, match="bronze, silver, gold"):
        check_plugin("ones", level="platinum", record=False, as_json=False)
    other = tmp_path / "other"
    other.mkdir()
    (other / "pyproject.toml").write_text('[project]\nname = "miles-plugin-other"\n')
    with pytest.raises(RequestError) as refused:
        check_plugin(str(other), level=None, record=False, as_json=False)
    assert f"pip install --no-build-isolation --no-deps -e {other}" in str(refused.value)
    (ones / "miles_plugin_ones" / "plugin.py").write_text("raise SystemExit(0)\n")
    with pytest.raises(PluginError, match="SystemExit"):
        check_plugin("ones", level=None, record=False, as_json=False)


def test_a_record_is_the_same_every_time_and_follows_the_code(ones: Path, capsys):
    file = ones / "miles_plugin_ones" / "conformance.json"
    assert check_plugin(str(ones), level="gold", record=True, as_json=True) == 1
    told = json.loads(capsys.readouterr().out)["plugins"][0]
    assert told["grade"] == "silver"
    assert all(check["detail"] and check["mend"] for check in told["checks"] if check["result"] == "failed")
    first = file.read_text()
    facts = json.loads(first)
    assert (facts["format"], facts["plugin"], facts["grade"]) == (1, "ones", "silver")
    assert {"id": "reward/any-text", "component": "reward.ones", "result": "passed"} in facts["checks"]
    [examination] = examine("ones")
    again = examination.report(check_all(examination).findings)
    made = make_record(again, ())
    assert made.text() == first
    (ones / "miles_plugin_ones" / "reward.py").write_text(REWARD_SOURCE + "\n# more\n")
    changed = make_record(again, ())
    assert changed.code != made.code
    assert replace(changed, code="") == replace(made, code="")


def test_pytest_runs_every_check_as_a_test(ones: Path, tmp_path: Path):
    environment = {**os.environ, "PYTHONPATH": str(ones), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}
    (tmp_path / "empty").mkdir()

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", ".", "-rs", *options]
        return subprocess.run(command, cwd=tmp_path / "empty", env=environment, capture_output=True, text=True)

    chosen = run("--miles-plugin", "ones", "-v", "-k", "deterministic or typed or conventions or wrong")
    assert "miles-plugin-ones::reward/deterministic[reward.ones] PASSED" in chosen.stdout
    assert "miles-plugin-ones::plugin/typed FAILED" in chosen.stdout
    assert "it has no options" in chosen.stdout
    assert "mend:    add an empty py.typed" in chosen.stdout
    assert "Traceback" not in chosen.stdout
    assert chosen.returncode == 1
    lower = run("--miles-plugin", "ones", "--miles-grade", "silver", "-q", "--collect-only")
    assert "plugin/loads-alone" in lower.stdout
    assert "plugin/typed" not in lower.stdout
    twice = run(
        "--miles-plugin", "ones", "--miles-plugin", "miles-plugin-ones", "--miles-plugin", str(ones), "-q", "--co"
    )
    assert twice.stdout.count("plugin/loads-alone") == 1
    unknown = run("--miles-plugin", "nothing-like-it")
    assert unknown.returncode == 4
    assert "not installed" in unknown.stderr
