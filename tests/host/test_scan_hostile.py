"""Archives, pipes and rushes that a scan or a change of miles.toml meets: named or borne, never a crash or a wait."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from miles_core.host.scan import scan
from miles_core.testing import SitePackages, run_recipe


def wheel(folder: Path) -> Path:
    """A sound one with one plugin, its metadata deflated."""
    file = folder / "bad-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bad-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: bad\nVersion: 1.0\n" * 20)
        archive.writestr("bad-1.0.dist-info/entry_points.txt", "[miles.plugins]\nbad = bad\n" * 20)
    return file


def spoil(file: Path, what: str) -> None:
    raw = bytearray(file.read_bytes())
    for info in zipfile.ZipFile(file).infolist():
        local = info.header_offset
        central = raw.rindex(b"PK\x01\x02", 0, raw.rindex(info.filename.encode()))
        if what == "stream":
            start = local + 30 + len(info.filename)
            raw[start : start + info.compress_size] = b"\xff" * info.compress_size
        else:
            offset, value = {"encrypted": (6, 1), "method": (8, 99)}[what]
            raw[local + offset] = value
            raw[central + offset + 2] = value
    file.write_bytes(raw)


@pytest.mark.parametrize("what", ["stream", "encrypted", "method"])
def test_an_archive_that_cannot_be_read_is_named_and_hides_nothing(
    site: SitePackages, tmp_path: Path, what: str
) -> None:
    site.plugin("good", "")
    file = wheel(tmp_path)
    assert "bad" in [plugin.name for plugin in scan([str(file)]).plugins]
    spoil(file, what)
    index = scan([str(file), str(site.folder)])
    assert [plugin.name for plugin in index.plugins] == ["good"]
    assert any(str(file) in warning for warning in index.warnings), index.warnings


def test_a_pipe_in_place_of_a_metadata_file_is_not_waited_for(site: SitePackages, tmp_path: Path) -> None:
    site.plugin("good", "")
    info = tmp_path / "pipe" / "odd-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    os.mkfifo(info / "entry_points.txt")
    code = "import sys; from miles_core.host.scan import scan; print([p.name for p in scan(sys.argv[1:]).plugins])"
    words = [sys.executable, "-c", code, str(info.parent), str(site.folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "['good']"


def test_changes_of_several_processes_at_once_are_all_kept(site: SitePackages, tmp_path: Path) -> None:
    names = [f"many{number}" for number in range(5)]
    for name in names:
        site.plugin(name, "")
    place = tmp_path / "place"
    place.mkdir()
    (tmp_path / "real.toml").write_text("# mine\n")
    (tmp_path / "real.toml").chmod(0o640)
    (place / "miles.toml").symlink_to(tmp_path / "real.toml")
    environment = {**os.environ, "PYTHONPATH": str(site.folder)}
    words = [sys.executable, "-m", "miles_core.cli.entry", "plugins", "enable"]
    running = [subprocess.Popen([*words, name], cwd=place, env=environment) for name in names]
    assert [each.wait(timeout=60) for each in running] == [0] * len(names)
    text = (tmp_path / "real.toml").read_text()
    assert sorted(tomllib.loads(text)["plugins"]["enable"]) == names and text.startswith("# mine\n")
    assert (place / "miles.toml").is_symlink() and (tmp_path / "real.toml").stat().st_mode & 0o777 == 0o640


LISTENER = """
from miles_core import hookimpl

class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")

@hookimpl
def miles_step_finished(step, metrics):
    if step == 0:
        raise Mute
    metrics["poison"] = object()
"""


def test_what_a_listener_does_stays_its_own(
    site: SitePackages, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site.plugin("odd", LISTENER)
    with caplog.at_level(logging.ERROR):
        run = run_recipe(tmp_path, plugins=["odd"])
    use = next(use for use in run.summary["plugins"] if use["name"] == "odd")
    assert (run.summary["state"], use["failures"]) == ("done", 2)
    assert any("its text raised ValueError" in record.message for record in caplog.records)
    assert all("poison" not in step for step in run.metrics)
