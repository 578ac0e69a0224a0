"""Every kind of plugin, installed: its own tests, the conformance kit, and its recipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from miles_core.contracts.component import KINDS
from miles_core.host.scan import Index
from miles_core.scaffold.make import make
from miles_core.scaffold.templates import KINDS_FOLDER

from .conftest import BY_PIP, Workshop, name_of

WITH_RECIPE = [kind for kind in KINDS if (KINDS_FOLDER / kind / "recipe.yaml").exists()]


def test_their_own_tests_pass(installed: Workshop) -> None:
    """In one process, and without the kit, which comes below."""
    tests = [str(installed.plugin(kind) / "tests") for kind in KINDS]
    options = ["-q", "-c", "/dev/null", "--import-mode=importlib", "-p", "no:asyncio", "-W", "error"]
    done = installed.run("-m", "pytest", *options, *tests)
    assert " passed" in done.stdout and "skipped" not in done.stdout, done.stdout


def test_two_of_one_kind_are_tested_together_and_without_a_warning(tmp_path: Path) -> None:
    """As in a folder where someone keeps all their plugins. The kit is left out: neither is installed."""
    folders = []
    for name in ("red", "green"):
        folders.append(tmp_path / f"miles-plugin-{name}")
        make(name, "reward", folders[-1], Index(()))
        project = folders[-1] / "pyproject.toml"
        settings = project.read_text()
        assert f'addopts = "--miles-plugin {name} ' in settings
        project.write_text(settings.replace(f"--miles-plugin {name} ", ""))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *map(str, folders)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, folders), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 6 passed" in done.stdout
    assert "warning" not in (done.stdout + done.stderr).lower()


@pytest.mark.parametrize("kind", BY_PIP)
def test_the_kit_gives_gold(installed: Workshop, kind: str) -> None:
    done = installed.run("-m", "miles_core.cli.entry", "plugins", "check", name_of(kind), "--level", "gold", "--json")
    (report,) = json.loads(done.stdout)["plugins"]
    assert report["grade"] == "gold"
    assert report["evidence"] == {f"{kind}.{name_of(kind)}": "fully-gated"}


def test_every_kind_behaves_as_its_contract_says(installed: Workshop) -> None:
    """The kit's checks of behaviour, all kinds in one process; what takes a process of its own is tried above."""
    program = """
        import json, sys
        from miles_core.testing.kit.run import examine

        findings = []
        for kind in sys.argv[1:]:
            (examination,) = examine(f"blue-{kind}")
            for trial in examination.trials():
                if trial.check.kind == kind:
                    finding = examination.attempt(trial)
                    findings.append([kind, finding.check.id, finding.result.value, finding.detail])
        print(json.dumps(findings))
    """
    done = installed.run("-c", textwrap.dedent(program), *KINDS)
    findings = json.loads(done.stdout)
    assert {kind for kind, *_ in findings} == set(KINDS)
    assert [each for each in findings if each[2] not in ("passed", "inapplicable")] == []


def test_recipes_run_and_use_what_was_made(installed: Workshop) -> None:
    """In one process, without child processes: those of the core's own runtime are tried elsewhere."""
    program = """
        import json, sys
        from pathlib import Path
        from miles_core import run

        summaries = {}
        for kind in sys.argv[1:]:
            runtime = {} if kind == "runtime" else {"runtime": {"use": "in-process"}}
            done = run(Path(f"miles-plugin-blue-{kind}/recipe.yaml"), view="none", steps=4, **runtime)
            plugins = [each["distribution"] for each in json.loads(done.folder.lock.read_text())["plugins"]]
            summaries[kind] = {"steps": len(done.metrics), "plugins": plugins, "files": [
                each.name for each in done.folder.path.iterdir()
            ], "metrics": sorted(done.metrics[-1])}
        print(json.dumps(summaries))
    """
    done = installed.run("-c", textwrap.dedent(program), *WITH_RECIPE)
    summaries = json.loads(done.stdout)
    for kind in WITH_RECIPE:
        assert summaries[kind]["steps"] == 4
        assert f"miles-plugin-{name_of(kind)}" in summaries[kind]["plugins"]
    assert "metrics.csv" in summaries["tracker"]["files"]
    assert "calls.csv" in summaries["runtime"]["files"]
    assert {"loss/clipped"} <= set(summaries["loss"]["metrics"])
    assert {"correction/clipped", "correction/mismatch"} <= set(summaries["correction"]["metrics"])


def test_a_packaged_recipe_is_found_by_name(installed: Workshop) -> None:
    done = installed.run("-m", "miles_core.cli.entry", "recipes", "list", "--json")
    entries = {each["name"]: each for each in json.loads(done.stdout)}
    assert entries["blue-recipe"]["origin"] == "miles-plugin-blue-recipe"
    assert entries["blue-recipe"]["summary"].startswith("The toy ring")
