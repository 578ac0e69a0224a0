"""The command: what it prints, what it refuses, and that it leaves nothing half-written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from miles_core import RequestError
from miles_core.cli.plugin_new import make_plugin
from miles_core.contracts.component import KINDS
from miles_core.host.scan import Index, InstalledPlugin
from miles_core.scaffold.make import make
from miles_core.scaffold.names import Names

INSTALLED = Index((InstalledPlugin("taken", "miles-plugin-taken", "1.2", "miles_plugin_taken"),))


def refusal(name: str, kind: str = "reward", to: Path | None = None) -> list[str]:
    with pytest.raises(RequestError) as caught:
        make(name, kind, to, INSTALLED)
    assert caught.value.exit_code == 2
    return [f"{problem.where}: {problem.what} | {problem.mend}" for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("written", "plugin", "module", "title"),
    [
        ("demo", "demo", "demo", "Demo"),
        ("My_Thing", "my-thing", "my_thing", "MyThing"),
        ("my.thing", "my-thing", "my_thing", "MyThing"),
        ("miles-plugin-my-thing", "my-thing", "my_thing", "MyThing"),
        ("v2-thing", "v2-thing", "v2_thing", "V2Thing"),
    ],
)
def test_names_as_people_write_them(written: str, plugin: str, module: str, title: str) -> None:
    names = Names.of(written)
    assert (names.plugin, names.module, names.title) == (plugin, module, title)
    assert names.problems(INSTALLED) == []


@pytest.mark.parametrize("name", ["", " ", "-", "3d", "a b", "naïve", "a/b", "../up", "a-", "demo!", "miles-plugin-"])
def test_names_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    (problem,) = refusal(name)
    assert problem.startswith("NAME: ") and "begin with a letter" in problem
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("taken", "reward", "a plugin 'taken' is installed already: miles-plugin-taken 1.2"),
        ("Taken", "reward", "installed already"),
        ("x" * 31, "reward", "31 characters"),
        ("schedule", "schedule", "'ScheduleOptions', which miles_core has already"),
        ("no", "reward", "'NoOptions', which miles_core has already"),
        ("generator", "middleware", "'GeneratorMiddleware', which miles_core has already"),
    ],
)
def test_names_that_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (problem,) = refusal(name, kind)
    assert expected in problem
    assert list(tmp_path.iterdir()) == []


def test_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    name, kind, place = refusal("3d", "rewrd", tmp_path / "there")
    assert "begin with a letter" in name
    assert "there is no kind 'rewrd' | did you mean 'reward'?" in kind and all(each in kind for each in KINDS)
    assert "is there already" in place


@pytest.mark.parametrize("what", ["folder", "file", "dangling link"])
def test_nothing_is_overwritten(tmp_path: Path, what: str) -> None:
    place = tmp_path / "place"
    if what == "folder":
        place.mkdir()
    elif what == "file":
        place.write_text("mine")
    else:
        place.symlink_to("nowhere")
    (problem,) = refusal("demo", to=place)
    assert "is there already" in problem and str(place) in problem
    assert not place.exists() or not place.is_dir() or not list(place.iterdir())


def test_a_plugin_that_was_made_before_is_to_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make("demo", "reward", None, INSTALLED)
    (problem,) = refusal("demo")
    assert "miles-plugin-demo: is there already" in problem
    assert "pip install --no-build-isolation --no-deps -e miles-plugin-demo; or name another folder" in problem


def test_the_folder_above_must_be_there(tmp_path: Path) -> None:
    (problem,) = refusal("demo", to=tmp_path / "no" / "such")
    assert str(tmp_path / "no") in problem
    assert list(tmp_path.iterdir()) == []


def test_what_goes_wrong_in_the_middle_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []
    write = Path.write_text

    def full_disk(self: Path, text: str, **options: str) -> int:
        written.append(self)
        if len(written) == 5:
            raise OSError(28, "No space left on device")
        return write(self, text, **options)

    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(RequestError, match="No space left on device"):
        make("demo", "reward", tmp_path / "demo", Index(()))
    assert len(written) == 5
    assert list(tmp_path.iterdir()) == []


def test_what_it_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert make_plugin("demo", kind="reward", to=None, as_json=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "made miles-plugin-demo: 12 files, which provide reward.demo"
    assert [line.strip() for line in lines[2:]] == [
        "pip install --no-build-isolation --no-deps -e miles-plugin-demo",
        "pytest miles-plugin-demo",
        "miles plugins check demo",
        "miles run miles-plugin-demo/recipe.yaml",
    ]
    assert (tmp_path / "miles-plugin-demo" / "pyproject.toml").is_file()


def test_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "a place"
    assert make_plugin("demo", kind="matcher", to=place, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["plugin"], told["kind"], told["folder"]) == ("demo", "matcher", str(place))
    assert sorted(told["files"]) == sorted(f.relative_to(place).as_posix() for f in place.rglob("*") if f.is_file())
    assert told["next"][0] == f"pip install --no-build-isolation --no-deps -e '{place}'" and len(told["next"]) == 3


def test_it_imports_nothing_heavy(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "miles_core.cli.entry"]
    command += ["plugins", "new", "demo", "--kind", "reward"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    imported = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert imported & {"numpy", "torch", "pyarrow", "yaml", "pluggy", "stevedore", "rich", "starlette"} == set()
    assert [each.name for each in tmp_path.iterdir()] == ["miles-plugin-demo"]
