from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from miles_core.errors import RequestError, RunError
from miles_core.observe.jsonl import JsonLines, read

ENDLESS = """
import sys
from pathlib import Path
from miles_core.observe.jsonl import JsonLines
lines = JsonLines(Path(sys.argv[1]))
for step in range(10**9):
    lines.append({"step": step, "padding": "x" * 500})
    if step == 50:
        print("going", flush=True)
"""

LIMITED = """
import resource, signal, sys
from pathlib import Path
from miles_core.errors import RunError
from miles_core.observe.jsonl import JsonLines
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # beyond the limit, write then fails as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
lines = JsonLines(Path(sys.argv[1]))
try:
    for step in range(100):
        lines.append({"step": step, "padding": "x" * 300})
except RunError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = JsonLines(path)
    lines.append({"step": 0, "loss/total": 0.1, "phase": "é"})
    lines.append({"step": 1})
    assert read(path) == [{"step": 0, "loss/total": 0.1, "phase": "é"}, {"step": 1}]
    assert json.loads(path.read_text().splitlines()[0]) == {"format": "miles.metrics", "version": 1}


def test_reopening_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    first = JsonLines(path)
    first.append({"a": 1})
    first.close()
    JsonLines(path).append({"a": 2})
    assert read(path) == [{"a": 1}, {"a": 2}]


def test_truncating_to_a_position_forgets_what_came_after(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = JsonLines(path)
    lines.append({"step": 0})
    position = lines.position()
    lines.append({"step": 1})
    before = path.read_bytes()[:position]
    lines.truncate(position)
    assert path.read_bytes() == before
    lines.append({"step": "again"})
    assert read(path) == [{"step": 0}, {"step": "again"}]
    with pytest.raises(RequestError, match="shorter than"):
        lines.truncate(10_000)


@pytest.mark.parametrize("bad", [math.nan, math.inf, object(), {"deep": [math.nan]}])
def test_what_is_not_finite_json_is_refused_by_name_and_leaves_no_trace(tmp_path: Path, bad: object) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = JsonLines(path)
    with pytest.raises(RunError, match="'loss/total'"):
        lines.append({"step": 0, "loss/total": bad})
    assert read(path) == []


def test_a_torn_last_line_is_dropped_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = JsonLines(path)
    lines.append({"step": 0})
    with path.open("ab") as file:
        file.write(b'{"step": 1, "lo')
    with pytest.warns(UserWarning, match="torn"):
        assert read(path) == [{"step": 0}]
    with pytest.warns(UserWarning, match="torn"):
        again = JsonLines(path)
    again.append({"step": 1})
    assert read(path) == [{"step": 0}, {"step": 1}]


def test_damage_before_the_last_line_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    JsonLines(path).append({"step": 0})
    path.write_bytes(path.read_bytes() + b'{"st\n{"step": 2}\n')
    with pytest.raises(RequestError, match=r"metrics\.jsonl:3"):
        read(path)


@pytest.mark.parametrize(
    "header", [{"format": "miles.events", "version": 1}, {"format": "miles.metrics", "version": 9}]
)
def test_another_format_or_version_is_refused(tmp_path: Path, header: dict[str, object]) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps(header) + "\n")
    with pytest.raises(RequestError, match="header"):
        read(path)
    with pytest.raises(RequestError, match="header"):
        JsonLines(path)


def test_a_killed_writer_leaves_every_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with subprocess.Popen([sys.executable, "-c", ENDLESS, str(path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
    records = read(path)
    assert len(records) > 50
    assert [record["step"] for record in records] == list(range(len(records)))


def test_a_full_disk_is_an_error_that_names_the_file_and_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    done = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert str(path) in done.stdout
    assert "mend:" in done.stdout
    assert path.read_bytes().endswith(b"}\n")
    assert 5 < len(read(path)) < 14
