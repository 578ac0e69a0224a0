"""A model folder is absent or complete: after errors, kills, full disks and races between real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from miles_core import RequestError, cache_root, check_made, make_once


def write(folder: Path) -> None:
    (folder / "weights").write_bytes(b"abc")
    (folder / "sub").mkdir()
    (folder / "sub" / "more").write_bytes(b"")


def test_it_is_made_once_and_listed(tmp_path: Path) -> None:
    calls: list[Path] = []

    def make(folder: Path) -> None:
        calls.append(folder)
        write(folder)

    folder = tmp_path / "deep" / "model"
    assert make_once(folder, make, what="it") == make_once(folder, make, what="it") == folder
    assert len(calls) == 1 and not calls[0].exists()
    files = json.loads((folder / "miles-manifest.json").read_text())["files"]
    assert files == {
        "weights": {"bytes": 3, "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        "sub/more": {"bytes": 0, "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    }
    check_made(folder, contents=True)


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        write(folder)
        raise KeyError("in the middle")

    with pytest.raises(KeyError):
        make_once(tmp_path / "model", fail, what="it")
    assert [path.name for path in tmp_path.iterdir()] == [".model.lock"]


def test_a_full_disk_says_where_and_what_to_do(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        with Path("/dev/full").open("wb") as stream:
            stream.write(b"x")

    with pytest.raises(RequestError, match="it cannot be written: No space left on device") as caught:
        make_once(tmp_path / "model", fail, what="it")
    assert "MILES_CACHE" in caught.value.problems[0].mend


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda f: (f / "weights").unlink(), "weights is missing"),
        (lambda f: (f / "weights").write_bytes(b"ab"), "weights has 2 bytes, expected 3"),
        (lambda f: (f / "miles-manifest.json").unlink(), "miles-manifest.json cannot be read"),
        (lambda f: (f / "miles-manifest.json").write_text("{"), "miles-manifest.json cannot be read"),
        (lambda f: (f / "miles-manifest.json").write_text("[]"), "miles-manifest.json cannot be read"),
    ],
)
def test_damage_is_found_at_every_use(damage, says: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    folder = make_once(tmp_path / "model", write, what="it")
    damage(folder)
    with pytest.raises(RequestError, match=says):
        make_once(folder, write, what="it")


def test_a_changed_byte_is_found_when_asked(tmp_path: Path) -> None:
    folder = make_once(tmp_path / "model", write, what="it")
    (folder / "weights").write_bytes(b"abd")
    check_made(folder)
    with pytest.raises(RequestError, match="weights has another sha256"):
        check_made(folder, contents=True)


SLOW = """
import sys, time
from pathlib import Path
from miles_core import make_once
def make(folder):
    (folder / "part").write_text("1")
    print("making", flush=True)
    sys.stdin.readline()
    (folder / "rest").write_text("2")
make_once(Path(sys.argv[1]), make, what="it")
print("done", flush=True)
"""


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SLOW, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_killed_process_leaves_nothing_that_is_taken_for_the_model(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    killed = start(folder)
    assert killed.stdout is not None and killed.stdout.readline() == "making\n"
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not folder.exists()
    assert len(list(tmp_path.glob(".model.*.tmp"))) == 1
    make_once(folder, write, what="it")
    assert list(tmp_path.glob(".model.*.tmp")) == []  # the next one cleans up


def test_a_second_process_waits_for_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    first = start(folder)
    assert first.stdout is not None and first.stdout.readline() == "making\n"
    second = start(folder)
    assert second.stderr is not None and "waiting for another process" in second.stderr.readline()
    time.sleep(0.05)
    assert second.poll() is None
    assert first.communicate("go\n", timeout=30)[0] == "done\n"
    assert second.communicate("go\n", timeout=30)[0] == "done\n"  # it never said "making"


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILES_CACHE", "~/models")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_root() == Path.home() / "models"
    monkeypatch.delenv("MILES_CACHE")
    assert cache_root() == Path("/xdg/miles")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root() == Path.home() / ".cache" / "miles"
