"""Reading what command line, environment and project file say of plugins."""

from __future__ import annotations

from pathlib import Path

import pytest

from miles_core.errors import RequestError
from miles_core.host.project import read_project
from miles_core.host.request import PluginRequest, read_request


def read(
    folder: Path, *selected: str, no_plugins: bool = False, project: str | None = None, **environ: str
) -> PluginRequest:
    if project is not None:
        (folder / "miles.toml").write_text(project)
    return read_request(selected, no_plugins=no_plugins, environ=environ, folder=folder)


def said(request: PluginRequest) -> list[tuple[str, str, str, str]]:
    return [(wish.level, wish.where, wish.name, wish.says) for wish in request.wishes]


def test_sources_come_weakest_first_each_with_its_place(tmp_path: Path) -> None:
    project = '# mine\n[plugins]\nenable = ["a",\n  "b"]\ndisable = ["c"]\n'
    request = read(tmp_path, "d", "no:e", project=project, MILES_PLUGINS="f, no:g")
    assert said(request.with_recipe(["h", "no:i"], ["r.yaml:3", "r.yaml:4"])) == [
        ("recipe", "r.yaml:3", "h", "enables"),
        ("recipe", "r.yaml:4", "i", "blocks"),
        ("project", "miles.toml:3", "a", "enables"),
        ("project", "miles.toml:4", "b", "enables"),
        ("project", "miles.toml:5", "c", "blocks"),
        ("environment", "MILES_PLUGINS=f, no:g", "f", "enables"),
        ("environment", "MILES_PLUGINS=f, no:g", "g", "blocks"),
        ("command line", "--plugin d", "d", "enables"),
        ("command line", "--plugin no:e", "e", "blocks"),
    ]


@pytest.mark.parametrize(
    ("value", "replaces"),
    [("", True), (" , ", True), ("a", True), ("no:a,b", True), ("no:a", False), ("no:a,no:b", False)],
)
def test_the_environment_replaces_when_it_names_plugins_or_is_empty(tmp_path: Path, value: str, replaces: bool) -> None:
    assert bool(read(tmp_path, MILES_PLUGINS=value).replacing) is replaces


def test_an_environment_that_is_not_set_says_nothing(tmp_path: Path) -> None:
    assert read(tmp_path) == PluginRequest()


@pytest.mark.parametrize("entry", ["", "no:", " ", "no: "])
def test_an_option_without_a_name_is_refused(tmp_path: Path, entry: str) -> None:
    with pytest.raises(RequestError, match="names no plugin"):
        read(tmp_path, entry)


def test_no_plugins_and_a_plugin_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"--plugin a and --no-plugins contradict"):
        read(tmp_path, "a", no_plugins=True)
    assert read(tmp_path, "no:a", no_plugins=True).core_only


def test_no_plugins_works_with_a_damaged_project_file(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"miles.toml: is not TOML.*\n.*--no-plugins"):
        read(tmp_path, project="[plugins\n")
    assert read(tmp_path, no_plugins=True).core_only


PROJECTS = [
    ("[plugins]\nenabel = []", "miles.toml:2: plugins.enabel is not a known key", "did you mean enable?"),
    ("plugins = 3", "miles.toml: plugins is no table", "write [plugins]"),
    ('[plugins]\nenable = "a"', "miles.toml:2: plugins.enable is not a list of names", 'enable = ["name"]'),
    ("[plugins]\ndisable = [1]", "miles.toml:2: plugins.disable is not a list of names", 'disable = ["name"]'),
    ('[plugins]\nenable = ["no:a"]', "miles.toml:2: plugins.enable has 'no:a'", "list it in `disable`"),
]


@pytest.mark.parametrize(("text", "says", "mend"), PROJECTS)
def test_a_wrong_project_file_has_its_line(tmp_path: Path, text: str, says: str, mend: str) -> None:
    with pytest.raises(RequestError) as error:
        read(tmp_path, project=text)
    assert says in str(error.value) and mend in error.value.problems[0].mend


def test_all_that_is_wrong_comes_at_once(tmp_path: Path) -> None:
    with pytest.raises(RequestError) as error:
        read(
            tmp_path,
            "no:",
            project='[plugins]\nenable = "a"\nfoo = 1',
            MILES_PLUGINS="no:",
            MILES_PLUGINS_ALLOWED="nix",
        )
    texts = [str(problem) for problem in error.value.problems]
    assert len(texts) == 5 and any("cannot be read" in text for text in texts)


FORMS = [
    ('plugins.enable = ["a"]', "miles.toml:1"),
    ('plugins = {enable = ["a"]}', "miles.toml"),
    ('[other]\nenable = ["a"]\n[plugins]\nenable = ["a"]', "miles.toml:4"),
    ('[plugins] # of ours\ndisable = ["z"]\n"enable" = [\n  # the first\n  "a",\n]', "miles.toml:5"),
]


@pytest.mark.parametrize(("text", "where"), FORMS)
def test_every_form_of_toml_is_read_and_the_line_never_wrong(tmp_path: Path, text: str, where: str) -> None:
    (tmp_path / "miles.toml").write_text(text)
    (entry,) = [each for each in read_project(tmp_path / "miles.toml") if each.enables]
    assert (entry.name, entry.where) == ("a", where)


ALLOWED = [
    ("", "has no table [allowed]"),
    ("[allowed", "is not TOML"),
    ('[allowed]\na = "1.0"', "a = '1.0' is no rule"),
    ('[allowed]\na = "sha256:12"', "is no rule"),
    ("[allowed]\na = 1", "is no rule"),
]


@pytest.mark.parametrize(("text", "says"), ALLOWED)
def test_an_allow_list_that_is_not_understood_admits_nothing(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "allowed.toml").write_text(text)
    with pytest.raises(RequestError) as error:
        read(tmp_path, MILES_PLUGINS_ALLOWED=str(tmp_path / "allowed.toml"))
    assert says in str(error.value)
