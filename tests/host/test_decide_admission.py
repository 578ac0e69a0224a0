"""What may not be imported although it is enabled, and everything that speaks against it at once."""

from __future__ import annotations

import base64
import hashlib
import sys
from pathlib import Path

import pytest

from miles_core.host.admit import hook_api_fault
from miles_core.host.allowed import AllowList, read_allowed
from miles_core.host.decide import Decision, decide
from miles_core.host.request import PluginRequest
from miles_core.host.scan import Index, InstalledPlugin, scan
from miles_core.testing.installing import SitePackages

CORE = InstalledPlugin("core", "miles-core", "0.1.0", "miles_core.components")
NEVER = "raise AssertionError('imported')"


def plugin(**facts: object) -> InstalledPlugin:
    made = InstalledPlugin("x", "miles-plugin-x", "1.0", "miles_plugin_x", location="/site/x.dist-info")
    return made._replace(**facts)  # type: ignore[arg-type]


def index(*plugins: InstalledPlugin, **versions: str) -> Index:
    return Index((CORE, *plugins), versions={"miles-core": "0.1.0", **versions})


def told(decision: Decision) -> list[str]:
    assert all(refusal.broken for refusal in decision.refusals)
    return [refusal.problem.what.removeprefix("plugin x (miles-plugin-x 1.0) ") for refusal in decision.refusals]


UNMET = [
    ("sympy>=1.12", "needs sympy>=1.12, which is not installed", "pip install 'sympy>=1.12'"),
    ("numpy>=99", "needs numpy>=99, installed is numpy 2.1", "pip install 'numpy>=99'"),
    ("numpy<2 ; python_version >= '3'", "needs numpy<2, installed is numpy 2.1", "pip install 'numpy<2'"),
    ("NumPy[all] ~= 3.0", "needs NumPy[all] ~= 3.0, installed is numpy 2.1", "pip install 'NumPy[all] ~= 3.0'"),
    ("miles-core>=0.2,<1", "needs miles-core>=0.2,<1, this is miles-core 0.1.0", "--upgrade miles-core miles-plugin-x"),
    ("local @ file:///x", "needs local @ file:///x, which is not installed", "pip install"),
]


@pytest.mark.parametrize(("requirement", "says", "mend"), UNMET)
def test_an_unmet_requirement_says_both_versions_and_the_mend(requirement: str, says: str, mend: str) -> None:
    decision = decide(index(plugin(requires=(requirement,)), numpy="2.1"), ["x"], core_version="0.1.0")
    assert told(decision) == [says]
    assert mend in decision.refusals[0].problem.mend
    assert decision.enabled == (CORE,) and decision.verdicts[1].status == "incompatible"


MET = ["numpy", "NumPy>=2,<3", "numpy>=99; extra == 'big'", "nosuch; python_version < '3'", "pre>=1", "miles-core>=0.1"]


@pytest.mark.parametrize("requirement", MET)
def test_a_requirement_that_holds_or_does_not_apply_is_no_fault(requirement: str) -> None:
    decision = decide(
        index(plugin(requires=(requirement,)), numpy="2.1", pre="1.0rc1" if requirement != "pre>=1" else "1.1a1"), ["x"]
    )
    assert not decision.refusals


def test_one_problem_hides_no_other() -> None:
    bad = {"miles-plugin-x": ("<2", "it eats checkpoints", "https://example.org/1")}
    subject = plugin(requires=("sympy>=1", "numpy>=99", "??"), hook_api="2.0")
    request = PluginRequest(allowed=AllowList("allowed.toml", {})).with_recipe(["x", "nosuch"], ["", ""])
    decision = decide(index(subject, numpy="2.1"), request, known_bad=bad)
    whats = " | ".join(refusal.problem.what for refusal in decision.refusals)
    for part in (
        "eats checkpoints",
        "not on the allow-list",
        "hook API 2.0",
        "sympy>=1",
        "numpy>=99",
        "'??'",
        "'nosuch'",
    ):
        assert part in whats
    assert len(decision.refusals) == 7


def test_what_is_not_enabled_is_not_judged() -> None:
    assert not decide(index(plugin(requires=("nosuch",), hook_api="9.0")), []).refusals


APIS = [
    ("", "1.0", None),
    ("1.0", "1.0", None),
    ("1.2", "1.10", None),
    ("1.11", "1.10", "pip install --upgrade miles-core"),
    ("2.0", "1.10", "pip install --upgrade miles-core"),
    ("1.9", "2.0", "pip install --upgrade miles-plugin-x"),
    ("0.9", "1.0", "pip install --upgrade miles-plugin-x"),
]


@pytest.mark.parametrize(("declared", "host", "mend"), APIS)
def test_the_hook_api_needs_the_same_major_and_no_newer_minor(declared: str, host: str, mend: str | None) -> None:
    fault = hook_api_fault(plugin(hook_api=declared), host)
    assert (fault.mend if fault else None) == mend
    assert fault is None or f"was written for hook API {declared}, this host has {host}" in fault.what


@pytest.mark.parametrize("declared", ["1", "1.0.0", "one", ">=1.0", "1.0, 1.1", "1.x", "-1.0"])
def test_a_malformed_hook_api_is_a_plain_problem(declared: str) -> None:
    fault = hook_api_fault(plugin(hook_api=declared))
    assert fault is not None and f"{declared!r}, expected one number MAJOR.MINOR" in fault.what


def test_the_hook_api_is_read_from_the_metadata(site: SitePackages) -> None:
    site.plugin("old", NEVER, hook_api="1.0")
    site.plugin("new", NEVER, hook_api="2.0")
    decision = decide(scan(), ["old", "new"])
    assert [each.name for each in decision.enabled] == ["core", "old"]
    assert {each.name: each.status for each in decision.verdicts} == {
        "core": "enabled",
        "old": "enabled",
        "new": "incompatible",
    }


def test_a_requirement_whose_metadata_is_damaged_is_named(site: SitePackages) -> None:
    site.plugin("x", NEVER, requires=["halfgone>=1"])
    folder = site.folder / "halfgone-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_bytes(b"Name: halfgone\n")
    (folder / "entry_points.txt").write_bytes(b"[miles.plugins]\n\xff = x\n")
    (refusal,) = decide(scan(), ["x"]).refusals
    assert "needs halfgone>=1, whose metadata is damaged" in refusal.problem.what


def test_damaged_metadata_of_others_is_not_in_the_way(site: SitePackages) -> None:
    site.plugin("x", NEVER, requires=["numpy>=1"])
    (site.folder / "empty-1.0.dist-info").mkdir()
    (site.folder / "odd-1.0.dist-info").mkdir()
    (site.folder / "odd-1.0.dist-info" / "entry_points.txt").write_bytes(b"[x]\n\xff\n")
    assert not decide(scan(), ["x"]).refusals


KNOWN_BAD = {"miles-plugin-x": ("<1.5", "rewards are shuffled", "https://example.org/shuffled")}


@pytest.mark.parametrize(("version", "refused"), [("1.0", True), ("1.5", False), ("1.4rc1", True), ("what", True)])
def test_a_known_bad_version_is_refused_with_reason_and_address(version: str, refused: bool) -> None:
    decision = decide(index(plugin(version=version)), ["x"], known_bad=KNOWN_BAD)
    assert bool(decision.refusals) is refused
    if refused:
        assert decision.refusals[0].broken and decision.verdicts[1].status == "blocked"
        assert "rewards are shuffled (https://example.org/shuffled)" in decision.refusals[0].problem.what


def test_nothing_is_known_to_be_bad_by_default() -> None:
    assert not decide(index(plugin()), ["x"]).refusals


@pytest.fixture
def allow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "allowed.toml"
    monkeypatch.setenv("MILES_PLUGINS_ALLOWED", str(file))
    return file


def test_only_what_the_allow_list_admits_is_imported(site: SitePackages, allow: Path) -> None:
    site.plugin("in", NEVER)
    site.plugin("out", NEVER)
    allow.write_text('[allowed]\n"Miles.Plugin_In" = "*"\n')
    decision = decide(scan(), ["in", "out", "toy"])
    assert [each.name for each in decision.enabled] == ["core", "in", "toy"]
    (refusal,) = decision.refusals
    assert refusal.broken and "out (miles-plugin-out 1.0) is not on the allow-list" in refusal.problem.what
    assert refusal.problem.where == str(allow) and "miles_plugin_out" not in sys.modules


def test_a_hash_admits_one_record_only(site: SitePackages, allow: Path) -> None:
    record = site.plugin("x", NEVER) / "RECORD"
    digest = hashlib.sha256(record.read_bytes()).hexdigest()
    allow.write_text(f'[allowed]\nmiles-plugin-x = "sha256:{digest.upper()}"\n')
    assert not decide(scan(), ["x"]).refusals
    record.write_text(record.read_text() + "more.py,,\n")
    (refusal,) = decide(scan(), ["x"]).refusals
    assert "has another hash than the allow-list's" in refusal.problem.what


def test_a_hash_does_not_admit_files_that_were_altered_after_installing(site: SitePackages, allow: Path) -> None:
    info = site.plugin("x", NEVER)
    module, lines = site.folder / "miles_plugin_x.py", (info / "RECORD").read_text()
    digest = base64.urlsafe_b64encode(hashlib.sha256(module.read_bytes()).digest()).rstrip(b"=").decode()
    (info / "RECORD").write_text(f"{lines}miles_plugin_x.py,sha256={digest},1\n")
    admitted = hashlib.sha256((info / "RECORD").read_bytes()).hexdigest()
    allow.write_text(f'[allowed]\nmiles-plugin-x = "sha256:{admitted}"\n')
    assert not decide(scan(), ["x"]).refusals
    module.write_text(NEVER + "  # by somebody\n")
    (refusal,) = decide(scan(), ["x"]).refusals
    assert refusal.broken and "other files: miles_plugin_x.py altered" in refusal.problem.what
    assert refusal.problem.where == str(allow) and "miles-plugin-x==1.0" in refusal.problem.mend
    module.unlink()
    (refusal,) = decide(scan(), ["x"]).refusals
    assert "miles_plugin_x.py missing" in refusal.problem.what


def test_a_hash_says_nothing_of_an_editable_installation() -> None:
    rules = AllowList("f", {"miles-plugin-x": "sha256:" + "0" * 64})
    fault = rules.objection(plugin(editable=True))
    assert fault is not None and "editable" in fault.what


def test_a_milesfile_needs_its_own_line_in_the_allow_list(tmp_path: Path) -> None:
    file = tmp_path / "milesfile.py"
    file.write_text("x = 1")
    milesfile = InstalledPlugin("milesfile", "", "", "milesfile", location=str(file))
    assert AllowList("f", {}).objection(milesfile) is not None
    assert AllowList("f", {"milesfile": "*"}).objection(milesfile) is None
    digest = hashlib.sha256(b"x = 1").hexdigest()
    assert AllowList("f", {"milesfile": f"sha256:{digest}"}).objection(milesfile) is None


def test_without_the_variable_there_is_no_allow_list() -> None:
    assert read_allowed({}) is None and read_allowed({"MILES_PLUGINS_ALLOWED": ""}) is None
