"""Reading a recipe and overriding it."""

from pathlib import Path

import pytest

from miles_core.errors import RequestError
from miles_core.recipe.document import Document, read_document
from miles_core.recipe.resolved import Source


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "quick.yaml"
    file.write_text("miles: 1\nschedule: {use: sync, group_size: 8}\nrewards:\n  - use: a\n  - use: b\nsteps: 3\n")
    return file


def source(document: Document, *parts: str | int) -> Source:
    return document.place(parts).source


def test_values_know_their_line(file: Path) -> None:
    document = read_document(file)
    assert document.stem == "quick"
    assert source(document, "rewards", 1, "use") == Source("recipe", f"{file}:5")
    assert document.place(("rewards", 1, "weight", "deep")).text == f"{file}:5:5"


def test_overrides_are_yaml_and_know_that_they_are_overrides(file: Path) -> None:
    document = read_document(
        file,
        ["schedule.group_size=4", "rewards[0].weight=2e-1", "trainer.kl={a: [1]}", "checkpoint.every=", "steps=yes"],
    )
    assert document.data["schedule"] == {"use": "sync", "group_size": 4}
    assert document.data["rewards"][0] == {"use": "a", "weight": 0.2}
    assert document.data["trainer"] == {"kl": {"a": [1]}}
    assert document.data["checkpoint"] == {"every": None} and document.data["steps"] == "yes"
    assert source(document, "schedule", "group_size") == Source("command line", "--set schedule.group_size=4")
    assert source(document, "trainer", "kl", "a", 0) == Source("command line", "--set trainer.kl={a: [1]}")
    assert source(document, "schedule", "use").kind == "recipe"


def test_a_replaced_section_forgets_its_old_places(file: Path) -> None:
    document = read_document(file, ["schedule={use: other}"])
    assert document.data["schedule"] == {"use": "other"}
    assert source(document, "schedule", "use").kind == "command line"


def test_the_later_override_wins(file: Path) -> None:
    assert read_document(file, ["steps=4", "steps=5"]).data["steps"] == 5


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("steps", "expected path=value"),
        ("=1", "expected path=value"),
        ("a..b=1", "expected path=value"),
        ("rewards[2].use=x", "rewards has 2 items"),
        ("rewards.use=x", "rewards is a list of 2, it has no key 'use'"),
        ("steps.x=1", "steps is 3, it has no key 'x'"),
        ("schedule[0]=1", "schedule is a mapping, not a list"),
        ("filters[0].use=x", "filters is not there"),
        ("steps=[1", "not YAML"),
    ],
)
def test_an_override_that_does_not_fit_is_refused(file: Path, override: str, says: str) -> None:
    with pytest.raises(RequestError) as error:
        read_document(file, [override])
    assert says in str(error.value) and f"--set {override}" in error.value.problems[0].where


def test_all_overrides_that_do_not_fit_are_listed(file: Path) -> None:
    with pytest.raises(RequestError) as error:
        read_document(file, ["steps", "rewards[9]=1", "steps=4"])
    assert len(error.value.problems) == 2


def test_a_mapping_from_python_is_a_recipe() -> None:
    document = read_document({"miles": 1, "data": {"use": "file", "path": Path("x")}}, ["seed=2"])
    assert document.data == {"miles": 1, "data": {"use": "file", "path": "x"}, "seed": 2}
    assert source(document, "data", "use") == Source("recipe", "recipe")


def test_the_callers_mapping_is_left_alone() -> None:
    given = {"schedule": {"group_size": 8}}
    read_document(given, ["schedule.group_size=4"])
    assert given == {"schedule": {"group_size": 8}}


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "holds nothing"), (b"- 1", "holds a list"), (b"\xff\xfe\x00", "not UTF-8"), (b"7", "a int")],
)
def test_a_file_that_holds_no_recipe_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "r.yaml"
    file.write_bytes(content)
    with pytest.raises(RequestError) as error:
        read_document(file)
    assert says in str(error.value) and str(file) in str(error.value) and error.value.exit_code == 2


def test_a_missing_file_names_those_beside_it(file: Path) -> None:
    with pytest.raises(RequestError) as error:
        read_document(file.with_name("quik.yaml"))
    assert "there is no such recipe" in str(error.value) and "quick.yaml" in str(error.value)
    with pytest.raises(RequestError, match="cannot be read"):
        read_document(file.parent)
