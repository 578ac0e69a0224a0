"""The static scan: what it finds, what it survives, and that it agrees with the standard library."""

import importlib.metadata
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from miles_core.host.metadata import normalise, read_sections
from miles_core.host.scan import Index, InstalledPlugin, scan
from miles_core.testing.installing import SitePackages


def found(site: SitePackages) -> Index:
    return scan([str(site.folder)])


def only(index: Index) -> InstalledPlugin:
    assert len(index.plugins) == 1
    return index.plugins[0]


def test_everything_about_a_plugin_is_read_without_importing_it(site: SitePackages) -> None:
    site.plugin(
        "math", "raise SystemExit", "0.3.1", provides=["reward.math", "loss.math"], requires=["miles-core>=0.1"]
    )
    plugin = only(found(site))
    assert plugin == InstalledPlugin(
        name="math",
        distribution="miles-plugin-math",
        version="0.3.1",
        module="miles_plugin_math",
        provides=("reward.math", "loss.math"),
        summary="made up for a test",
        requires=("miles-core>=0.1",),
        location=str(site.folder / "miles_plugin_math-0.3.1.dist-info"),
    )
    assert "miles_plugin_math" not in sys.modules


@pytest.mark.parametrize("content", [b"no equals sign here\n", b"[x]\nname without value\n"])
def test_malformed_foreign_metadata_is_one_warning_that_names_it(site: SitePackages, content: bytes) -> None:
    site.plugin("math", "")
    (site.distribution("foreign") / "entry_points.txt").write_bytes(content)
    index = found(site)
    assert only(index).name == "math"
    assert len(index.warnings) == 1 and "foreign-1.0.dist-info" in index.warnings[0]


def test_non_utf8_foreign_metadata_is_one_warning_that_names_it(site: SitePackages) -> None:
    site.plugin("math", "")
    (site.distribution("foreign") / "entry_points.txt").write_bytes(b"[x]\na = \xff\xfe\n")
    index = found(site)
    assert only(index).name == "math"
    assert len(index.warnings) == 1 and "foreign-1.0.dist-info" in index.warnings[0]


def test_an_empty_metadata_folder_is_one_warning_that_names_it(site: SitePackages) -> None:
    site.plugin("math", "")
    (site.folder / "foreign-2.0.dist-info").mkdir()
    index = found(site)
    assert only(index).name == "math"
    assert len(index.warnings) == 1 and "foreign-2.0.dist-info" in index.warnings[0]


def test_a_plugin_without_metadata_is_left_out_with_a_warning(site: SitePackages) -> None:
    (site.plugin("math", "") / "METADATA").unlink()
    index = found(site)
    assert not index.plugins
    assert "miles_plugin_math-1.0.dist-info" in index.warnings[0]


def test_the_standard_library_dies_of_what_the_scan_survives(
    site: SitePackages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason for a scan of our own. Should this fail one day, the standard library has learned it."""
    site.plugin("math", "")
    (site.distribution("foreign") / "entry_points.txt").write_bytes(b"[x]\na = \xff\xfe\n")
    monkeypatch.setattr(sys, "path", [str(site.folder)])
    with pytest.raises(UnicodeDecodeError):
        importlib.metadata.entry_points(group="miles.plugins")


def test_names_are_normalised(site: SitePackages) -> None:
    site.distribution("Miles.Plugin_C", plugins={"c": "c"})
    assert only(found(site)).distribution == "miles-plugin-c"
    assert normalise("Miles.Plugin_C") == normalise("miles--plugin-c") == "miles-plugin-c"


def test_the_first_on_the_path_wins_and_the_shadowed_one_is_said(tmp_path: Path) -> None:
    first, second = SitePackages(tmp_path / "a"), SitePackages(tmp_path / "b")
    first.distribution("miles-plugin-x", "1.0", plugins={"x": "x"})
    second.distribution("Miles_Plugin.X", "2.0", plugins={"x": "x"})
    index = scan([str(first.folder), str(second.folder)])
    assert only(index).version == "1.0"
    assert [plugin.version for plugin in index.shadowed] == ["2.0"]
    assert index.shadowed[0].shadowed_by == only(index).location
    assert str(first.folder) in index.warnings[0] and str(second.folder) in index.warnings[0]
    assert only(scan([str(second.folder), str(first.folder)])).version == "2.0"


def test_a_stale_egg_info_that_hides_a_plugin_is_said_with_both_paths(tmp_path: Path) -> None:
    source, installed = SitePackages(tmp_path / "src"), SitePackages(tmp_path / "site")
    source.distribution("miles-plugin-x", "0.1", egg=True)
    installed.distribution("miles-plugin-x", "2.0", plugins={"x": "x"})
    index = scan([str(source.folder), str(installed.folder)])
    assert not index.plugins
    assert index.shadowed[0].name == "x"
    assert "miles_plugin_x.egg-info" in index.warnings[0] and "miles_plugin_x-2.0.dist-info" in index.warnings[0]


def test_an_editable_installation_is_one_plugin(tmp_path: Path) -> None:
    source, installed = SitePackages(tmp_path / "src"), SitePackages(tmp_path / "site")
    source.distribution("miles-plugin-x", plugins={"x": "x"}, egg=True)
    info = installed.distribution("miles-plugin-x", plugins={"x": "x"})
    (info / "direct_url.json").write_text('{"dir_info": {"editable": true}, "url": "file:///src"}')
    for path in ([source, installed], [installed, source]):
        index = scan([str(each.folder) for each in path])
        assert only(index).editable and only(index).location == str(info)
        assert not index.warnings and not index.shadowed


def test_an_egg_info_alone_is_a_plugin(site: SitePackages) -> None:
    folder = site.distribution("miles-plugin-x", plugins={"x": "x"}, egg=True)
    (folder / "requires.txt").write_text("miles-core>=0.1\n\n[dev]\npytest\n")
    plugin = only(found(site))
    assert plugin.editable and plugin.requires == ("miles-core>=0.1",)


def test_a_wheel_on_the_path_is_read(site: SitePackages, tmp_path: Path) -> None:
    site.plugin("math", "VALUE = 3", "0.2")
    wheel = tmp_path / "miles_plugin_math-0.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in site.folder.rglob("*"):
            archive.write(file, file.relative_to(site.folder))
    plugin = only(scan([str(wheel)]))
    assert (plugin.name, plugin.version) == ("math", "0.2")
    assert plugin.location == f"{wheel}/miles_plugin_math-0.2.dist-info"


def test_what_is_no_archive_or_no_folder_is_survived(tmp_path: Path) -> None:
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"PK\x05\x06 not really")
    (tmp_path / "plain.txt").write_text("hello")
    index = scan([str(broken), str(tmp_path / "plain.txt"), str(tmp_path / "absent"), ""])
    assert all(plugin.distribution != "broken" for plugin in index.plugins)


def test_sections_are_read_like_the_standard_library_reads_them() -> None:
    text = "[a]\nx = 1\n# y = 2\n\n[ miles.plugins ]\n n-1 = m.k:obj [extra]\nn2=q\n[b]\nz = 1\n"
    sections = read_sections(text, ("miles.plugins",))
    expected = importlib.metadata.EntryPoints._from_text(text.replace("[ miles.plugins ]", "[miles.plugins]"))
    assert sections["miles.plugins"] == {e.name: e.value for e in expected if e.group == "miles.plugins"}


def test_the_scan_agrees_with_the_standard_library_on_this_environment() -> None:
    path = [entry for entry in sys.path if entry]
    ours = {(p.name, p.module, p.distribution, p.version) for p in scan(path).plugins}
    theirs = {
        (e.name, e.value, normalise(e.dist.metadata["Name"]), e.dist.version)
        for e in importlib.metadata.entry_points(group="miles.plugins")
        if e.dist is not None
    }
    assert ours == theirs and ours


def test_the_scan_imports_only_cheap_things(tmp_path: Path) -> None:
    heavy = [
        "importlib.metadata",
        "pydantic",
        "pluggy",
        "stevedore",
        "rich",
        "packaging",
        "dataclasses",
        "zipfile",
        "json",
    ]
    site = SitePackages(tmp_path / "site")
    site.plugin("noisy", "print('imported')")
    code = (
        "import sys; before = set(sys.modules)\n"
        "from miles_core.host.scan import scan\n"
        f"assert [p.name for p in scan([{str(site.folder)!r}]).plugins] == ['noisy']\n"
        f"print(sorted((set(sys.modules) - before) & {set(heavy)!r}), 'miles_plugin_noisy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] False\n"


def test_fifty_plugins_cost_a_few_milliseconds(site: SitePackages) -> None:
    """Against the same work by the standard library, since a busy machine has no milliseconds of its own."""
    import time

    for number in range(50):
        site.plugin(f"p{number}", "", provides=[f"reward.p{number}"])
    path = [str(site.folder)]

    def seconds(call: object) -> float:
        best = float("inf")
        for _ in range(5):
            started = time.process_time()
            call()  # type: ignore[operator]
            best = min(best, time.process_time() - started)
        return best

    ours = seconds(lambda: scan(path))
    theirs = seconds(
        lambda: [(d.metadata["Name"], list(d.entry_points)) for d in importlib.metadata.distributions(path=path)]
    )
    assert ours < theirs
