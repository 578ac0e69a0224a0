"""Broken packages, installed like real ones: what the plugin as a whole, and building in a worker, must not do."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

from miles_core.errors import RequestError
from miles_core.hookspecs import events
from miles_core.testing.installing import SitePackages
from miles_core.testing.kit.check import CheckResult, Finding
from miles_core.testing.kit.of_plugin.listening import made_up_run
from miles_core.testing.kit.run import Examination, examine

SOUND = """
    from miles_core import Component, hookimpl

    @hookimpl
    def miles_rewards():
        return [Component("sound", "miles_plugin_sound.reward:Sound", summary="Always 1")]
"""
REWARD = """
    from miles_core import Score

    class Sound:
        def __init__(self, options, context):
            pass

        async def score(self, group):
            return [Score(1.0) for _ in group.trajectories]
"""
BROKEN = """
    import os
    import random
    import sys
    import logging
    import time
    import torch
    import some_undeclared_package
    import miles_plugin_sound
    from miles_core.contracts.component import Component
    from miles_core import hookimpl

    print("hello")
    os.environ["LOUD"] = "1"
    random.seed(1)
    logging.basicConfig()
    sys.path.append("/nowhere")
    end = time.process_time() + 0.15
    while time.process_time() < end:
        pass
    calls = []

    @hookimpl
    def miles_rewards():
        calls.append(1)
        return [Component(f"number-{len(calls)}", "miles_plugin_broken.reward:Broken")]

    @hookimpl
    def miles_agents():
        import miles_core.testing.kit.run as loaded_by_the_kit_alone
        return [
            Component("builds-not", "miles_plugin_broken.reward:Nowhere"),
            Component("exits", "miles_plugin_broken.reward:exits"),
            Component("sync", "miles_plugin_broken.reward:Sync"),
            Component("heavy", "miles_plugin_broken.reward:Good", "miles_plugin_broken.heavy:Heavy"),
        ]
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    packages = SitePackages(tmp_path / "site")
    monkeypatch.syspath_prepend(str(packages.folder))
    yield packages
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def sound(site: SitePackages) -> Examination:
    site.module("miles_plugin_sound.plugin", SOUND)
    site.module("miles_plugin_sound.reward", REWARD)
    (site.folder / "miles_plugin_sound" / "py.typed").touch()
    folder = site.distribution(
        "miles-plugin-sound",
        plugins={"sound": "miles_plugin_sound.plugin"},
        provides=["reward.sound"],
        requires=["miles-core>=0.1"],
    )
    with (folder / "METADATA").open("r+") as file:
        text = file.read().replace("Summary:", "License-Expression: MIT\nRequires-Python: >=3.11\nSummary:")
        file.seek(0)
        file.write(text)
    return examine("sound")[0]


def tried(examination: Examination) -> dict[tuple[str, str], Finding]:
    """Everything of the plugin and of every kind, by id and component."""
    trials = [t for t in examination.trials() if t.check.kind in ("", "component")]
    return {(t.check.id, t.component): examination.attempt(t) for t in trials}


def test_a_sound_plugin_passes(sound: Examination):
    findings = tried(sound)
    assert {finding.result for finding in findings.values()} == {CheckResult.PASSED, CheckResult.INAPPLICABLE}
    inapplicable = {key[0] for key, f in findings.items() if f.result is CheckResult.INAPPLICABLE}
    without_source = {"plugin/has-tests", "plugin/own-recipe-runs"}
    assert inapplicable == {*without_source, "plugin/hooks-hear-a-run", "component/wrong-options-refused"}


def test_a_plugin_that_does_everything_wrong(site: SitePackages, sound: Examination):
    site.module("torch", "")
    site.module("some_undeclared_package", "")
    site.module(
        "miles_plugin_broken.heavy", "import torch\nfrom miles_core import Options\nclass Heavy(Options): pass\n"
    )
    site.module(
        "miles_plugin_broken.reward",
        """
        import os

        class Good:
            def __init__(self, options, context):
                pass
            async def run(self, episode):
                pass

        class Sync(Good):
            def run(self, episode, mood):
                pass

        def exits(options, context):
            os._exit(3)

        class Broken(Good):
            pass
        """,
    )
    site.module("miles_plugin_broken.core", BROKEN)
    (site.folder / "miles_plugin_broken" / "__init__.py").write_text("import pydantic\n")
    site.distribution(
        "miles-plugin-odd", plugins={"broken": "miles_plugin_broken.core"}, provides=["reward.other"], summary=""
    )
    findings = tried(examine("miles-plugin-odd")[0])
    failed = {key for key, finding in findings.items() if finding.result is CheckResult.FAILED}
    assert {check for check, component in failed if not component} == {
        "plugin/provides-what-it-declares",
        "plugin/named-by-convention",
        "plugin/metadata-for-strangers",
        "plugin/typed",
        "plugin/light-import",
        "plugin/quick-import",
        "plugin/changes-no-global-state",
        "plugin/prints-nothing",
        "plugin/registers-the-same-twice",
        "plugin/declares-what-it-imports",
        "plugin/uses-the-public-api",
        "plugin/imports-no-other-plugin",
        "plugin/empty-package",
    }
    assert ("component/builds-in-a-worker", "agent.builds-not") in failed
    assert ("component/builds-in-a-worker", "agent.exits") in failed
    assert ("component/keeps-the-protocol", "agent.sync") in failed
    assert ("component/options-import-little", "agent.heavy") in failed
    assert "status 3" in findings["component/builds-in-a-worker", "agent.exits"].detail
    protocol = findings["component/keeps-the-protocol", "agent.sync"]
    assert "async def run(self, episode: Episode)" in protocol.mend
    assert "mood" in protocol.detail
    state = findings["plugin/changes-no-global-state", ""].detail
    for changed in ("environment variables (LOUD added)", "sys.path", "root logger", "random's generator"):
        assert changed in state
    assert "some_undeclared_package" in findings["plugin/declares-what-it-imports", ""].detail


def test_loads_alone_is_tried_where_nothing_else_was_imported(site: SitePackages):
    site.module(
        "miles_plugin_needy.plugin", "import sys\nif 'pytest' not in sys.modules: raise OSError('alone')\n" + TINY
    )
    site.distribution("miles-plugin-needy", plugins={"needy": "miles_plugin_needy.plugin"})
    findings = tried(examine("needy")[0])
    assert findings["plugin/loads-alone", ""].result is CheckResult.FAILED
    assert "alone" in findings["plugin/loads-alone", ""].detail
    assert findings["plugin/registers-something", ""].result is CheckResult.FAILED


def test_who_only_listens_registers_something(site: SitePackages):
    site.module(
        "miles_plugin_ear.plugin",
        "from miles_core import hookimpl\n\n@hookimpl\ndef miles_run_started(run):\n    pass\n",
    )
    site.distribution("miles-plugin-ear", plugins={"ear": "miles_plugin_ear.plugin"}, requires=["miles-core"])
    [examination] = examine("ear")
    [trial] = [trial for trial in examination.trials() if trial.check.id == "plugin/registers-something"]
    assert examination.attempt(trial).result is CheckResult.PASSED


HEARS = """
    from miles_core import Component, hookimpl

    @hookimpl
    def miles_step_finished(step, metrics):
        assert metrics["time/step"] >= 0
        {}

    @hookimpl
    def miles_evaluated(score, skipped):
        assert skipped or score is not None
"""


@pytest.mark.parametrize(
    ("line", "result", "words"),
    [
        ("print(step)", CheckResult.PASSED, ""),
        ("raise LookupError('always')", CheckResult.FAILED, "miles_step_finished: LookupError: always"),
        ("metrics['loss/mine'] + 1", CheckResult.FAILED, "KeyError: 'loss/mine'"),
    ],
)
def test_event_hooks_are_told_of_a_run(site: SitePackages, line: str, result: CheckResult, words: str):
    site.module("miles_plugin_ear.plugin", HEARS.format(line))
    site.distribution("miles-plugin-ear", plugins={"ear": "miles_plugin_ear.plugin"}, requires=["miles-core"])
    finding = attempted(examine("ear")[0], "plugin/hooks-hear-a-run")
    assert finding.result is result, finding
    assert words in finding.detail
    assert result is CheckResult.PASSED or "plugin.py:" in finding.detail


def test_who_hears_nothing_need_not_listen(sound: Examination):
    assert attempted(sound, "plugin/hooks-hear-a-run").result is CheckResult.INAPPLICABLE


def test_the_made_up_run_tells_every_event_with_every_fact(tmp_path: Path):
    specs = {
        name.removeprefix("miles_"): set(inspect.signature(spec).parameters)
        for name, spec in vars(events).items()
        if hasattr(spec, "miles_spec")
    }
    told = {name: {*facts, "run"} for name, facts in made_up_run(tmp_path)}
    assert told == specs


def attempted(examination: Examination, check_id: str) -> Finding:
    [trial] = [trial for trial in examination.trials() if trial.check.id == check_id]
    return examination.attempt(trial)


def test_a_record_of_a_run_verifies_what_it_names(sound: Examination, site: SitePackages):
    file = site.folder / "miles_plugin_sound" / "big.evidence.json"
    file.write_text('{"components": ["reward.sound"]}')
    assert sound.report(()).evidence() == {"reward.sound": "verified"}
    file.write_text("{")
    with pytest.raises(RequestError, match="no record of a run"):
        sound.report(())


def test_tests_are_looked_for_in_the_source(site: SitePackages, tmp_path: Path):
    source = SitePackages(tmp_path / "source")
    source.module("miles_plugin_bare.plugin", TINY)
    source.distribution("miles-plugin-bare", plugins={"bare": "miles_plugin_bare.plugin"}, egg=True)
    (source.folder / "pyproject.toml").write_text('[project]\nname = "miles-plugin-bare"\n')
    sys.path.insert(0, str(source.folder))
    try:
        assert tried(examine(str(source.folder))[0])["plugin/has-tests", ""].result is CheckResult.FAILED
        (source.folder / "tests").mkdir()
        (source.folder / "tests" / "test_it.py").touch()
        assert tried(examine("bare")[0])["plugin/has-tests", ""].result is CheckResult.PASSED
    finally:
        sys.path.remove(str(source.folder))


TINY = "from miles_core import hookimpl\n\n@hookimpl\ndef miles_rewards():\n    return []\n"
