"""Workers build what they are sent only in the version that the driver has, and search for nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from miles_core.contracts import installed
from miles_core.contracts.component import BuildContext, ComponentRef
from miles_core.contracts.installed import check_version
from miles_core.errors import PluginError
from miles_core.host.scan import scan
from miles_core.testing.installing import SitePackages

FACTORY = """
class Thing:
    def __init__(self, options, context):
        self.name = context.name
"""


def ref_of(site: SitePackages, name: str, version: str = "1.0") -> ComponentRef:
    """What a driver would send that found the plugin in `site`."""
    [plugin] = [each for each in scan([str(site.folder)]).plugins if each.name == name]
    module = plugin.module
    return ComponentRef(
        "engine", name, f"{module}:Thing", "miles_core.contracts.options:NoOptions", {}, plugin.distribution, version,
        plugin.location,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "_CONFIRMED", set())


def test_the_same_version_is_built(site: SitePackages) -> None:
    site.plugin("same", FACTORY)
    assert ref_of(site, "same").build(BuildContext(1, "engine-0")).name == "engine-0"


def test_another_version_is_refused_by_host_worker_distribution_and_both_versions(site: SitePackages) -> None:
    site.plugin("other", "raise SystemExit('must not be imported')", "2.0")
    with pytest.raises(PluginError) as error:
        ref_of(site, "other").build(BuildContext(1, "engine-0"))
    for part in (socket.gethostname(), "engine-0", "miles-plugin-other 1.0", "2.0 is installed here", "pip install"):
        assert part in str(error.value)


def test_what_is_not_installed_is_refused(site: SitePackages) -> None:
    with pytest.raises(PluginError, match="not installed here"):
        check_version("miles-plugin-absent", "1.0", "/gone/miles_plugin_absent-1.0.dist-info", "nowhere", "worker 'x'")


def test_an_upgrade_while_the_driver_lives_is_noticed(site: SitePackages) -> None:
    site.plugin("fresh", FACTORY)
    ref = ref_of(site, "fresh")
    Path(ref.location).rename(site.folder / "miles_plugin_fresh-1.1.dist-info")
    (site.folder / "miles_plugin_fresh-1.1.dist-info" / "METADATA").write_text(
        "Name: miles-plugin-fresh\nVersion: 1.1\n"
    )
    with pytest.raises(PluginError, match=r"1\.1 is installed here"):
        ref.build(BuildContext(1, "engine-0"))


def test_the_same_version_elsewhere_on_another_node_is_the_same(site: SitePackages) -> None:
    site.plugin("moved", FACTORY)
    info = "/driver/site-packages/miles_plugin_moved-1.0.dist-info"
    check_version("miles-plugin-moved", "1.0", info, "miles_plugin_moved", "worker 'x'")


def test_a_copy_that_comes_earlier_on_the_path_counts(site: SitePackages, tmp_path: Path) -> None:
    later = SitePackages(tmp_path / "later")
    later.plugin("twice", FACTORY, "1.0")
    site.plugin("twice", FACTORY, "2.0")
    sys.path.append(str(later.folder))
    try:
        with pytest.raises(PluginError, match=r"2\.0 is installed here"):
            ref_of(later, "twice").build(BuildContext(1, "engine-0"))
    finally:
        sys.path.remove(str(later.folder))


def test_an_editable_plugin_and_a_wheel_on_the_path_are_found(site: SitePackages, tmp_path: Path) -> None:
    source = SitePackages(tmp_path / "source")
    source.module("miles_plugin_edited", FACTORY)
    info = site.distribution("miles-plugin-edited", plugins={"edited": "miles_plugin_edited"})
    (info / "direct_url.json").write_text('{"dir_info": {"editable": true}, "url": "file:///source"}')
    zipped = SitePackages(tmp_path / "zipped")
    zipped.plugin("zipped", FACTORY)
    wheel = tmp_path / "miles_plugin_zipped-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in zipped.folder.rglob("*"):
            archive.write(file, file.relative_to(zipped.folder))
    sys.path += [str(source.folder), str(wheel)]
    try:
        check_version("miles-plugin-edited", "1.0", str(info), "miles_plugin_edited", "worker 'x'")
        location = f"{wheel}/miles_plugin_zipped-1.0.dist-info"
        check_version("miles-plugin-zipped", "1.0", location, "miles_plugin_zipped", "worker 'x'")
    finally:
        del sys.path[-2:]


WATCH = """
import os, sys
def watch(event, arguments, seen=[]):
    if event not in ("os.scandir", "os.listdir"):
        return
    frame, listing = sys._getframe(1), ""
    if frame.f_code.co_filename == "<frozen importlib._bootstrap_external>":
        return  # the import system looks for modules; that is not a search for plugins
    with open(os.environ["SEEN"], "a") as file:
        file.write(f"{event} {arguments[0]} from {frame.f_code.co_filename}:{frame.f_lineno}\\n")
sys.addaudithook(watch)
"""

DRIVER = """
import asyncio, sys
from miles_core.contracts.component import BuildContext, ComponentRef
from miles_core.runtime.local import LocalOptions, LocalRuntime

async def main():
    options = LocalOptions(environment={"SEEN": sys.argv[2], "PYTHONPATH": sys.argv[1]})
    runtime = LocalRuntime(options, BuildContext(1, "r"))
    ref = ComponentRef("engine", "quiet", "miles_plugin_quiet:Thing", "miles_core.contracts.options:NoOptions", {},
                       "miles-plugin-quiet", sys.argv[3], sys.argv[1] + "/miles_plugin_quiet-1.0.dist-info")
    try:
        await runtime.start(ref, BuildContext(1, "engine-0"))
    finally:
        await runtime.close()

asyncio.run(main())
"""


@pytest.mark.parametrize(("version", "lists"), [("1.0", False), ("0.9", True)])
def test_a_worker_lists_no_folder_until_its_component_is_built(
    site: SitePackages, tmp_path: Path, version: str, lists: bool
) -> None:
    """Counted by an audit hook from the first line of the worker's life. What the import system lists in order to find
    modules is its own affair. With a wrong version there is a search, for the message: so the hook can see."""
    site.plugin("quiet", FACTORY)
    site.module("sitecustomize", WATCH)
    seen = tmp_path / "seen"
    command = [sys.executable, "-c", DRIVER, str(site.folder), str(seen), version]
    environment = {**os.environ, "PYTHONPATH": str(site.folder), "SEEN": os.devnull}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    listed = seen.read_text().splitlines() if seen.exists() else []
    assert (done.returncode == 0) is not lists, done.stderr
    found = [line for line in listed if "site" in line]
    assert bool(found) is lists, listed
