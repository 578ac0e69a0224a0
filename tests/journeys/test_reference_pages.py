"""The documentation is what the code says: generated pages are up to date, links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from miles_core.scaffold.names import Names
from miles_core.scaffold.render import render

ROOT = Path(__file__).parents[2]
KINDS = ROOT / "docs" / "kinds"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("plugins/*/*.md")])


def test_generated_pages_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    stale = [str(file) for file, text in generate.pages().items() if file.read_text(encoding="utf-8") != text]
    assert not stale, "run `python docs/generate.py`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_of_the_repository(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text)]
    local = [link for link in links if link and "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_the_reader_of_a_kind_finds_what_its_code_is_given() -> None:
    middleware = (KINDS / "middleware.md").read_text(encoding="utf-8")
    for name in ("Middleware", "AgentMiddleware", "GeneratorMiddleware", "RolloutMiddleware", "Attempt", "Episode"):
        assert f"class {name}" in middleware
    common = (KINDS / "README.md").read_text(encoding="utf-8")
    assert "class BuildContext:" in common and "class Component:" in common
    for row in (
        "`use`",
        "| `rewards` | `name`, `weight` |",
        "| `generator` | `sampling` |",
        "| `engine` | `replicas` |",
    ):
        assert row in common
    tracker = (KINDS / "tracker.md").read_text(encoding="utf-8")
    assert "`done`, `failed` or `interrupted`" in tracker
    assert "event loop" in (KINDS / "reward.md").read_text(encoding="utf-8")


def test_every_option_stands_once_on_the_page_of_the_command_line() -> None:
    rows = re.findall(r"^\| (`--.*?) \| (.*?) \|", (ROOT / "docs" / "cli.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) > 10
    assert sorted(set(rows)) == sorted(rows)


def test_pages_and_generated_plugins_agree_about_versions() -> None:
    settings = render("reward", Names("xyz"))["pyproject.toml"]
    [core] = re.findall(r'"(miles-core[^"]*)"', settings)
    [hooks] = re.findall(r'^"([\d.]+)" = ', settings, re.MULTILINE)
    for page in ("publishing.md", "versions.md", "plugins.md"):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert set(re.findall(r"miles-core[<>=][^`\"]*", text)) <= {core}, page
        assert set(re.findall(r'^ *"([\d.]+)" = "miles_plugin', text, re.MULTILINE)) == {hooks}, page


def test_the_readme_lists_every_page() -> None:
    listed = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = [page.name for page in (ROOT / "docs").glob("*.md") if f"(docs/{page.name})" not in listed]
    assert missing == []
