"""The process that owns a cluster of its own: `python -m miles_plugin_ray.head FD SETTINGS`.

It starts Ray on this machine, writes the address to the descriptor, and ends everything that it started when its
standard input closes: that is, when the driver says so or is no more, however that died. Ray's servers end with it
too if it is killed. Nothing that another Ray on this machine started is touched.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

END_SECONDS = 5.0

LOOPBACK = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
"""Where nobody on the network hears it. Ray takes 127.0.0.1 as a request for the address that the network sees."""


def main() -> None:
    """`SETTINGS` is JSON: keyword arguments of ray.init."""
    answer, settings = int(sys.argv[1]), json.loads(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle; it closes our standard input
    folder = tempfile.mkdtemp(prefix="miles-ray-", dir="/tmp")
    os.chdir(folder)  # where the driver was may be deleted while Ray still starts processes there
    try:
        _serve(answer, settings, folder)
    finally:
        _end_session()
        shutil.rmtree(folder, ignore_errors=True)


def _serve(answer: int, settings: dict[str, Any], folder: str) -> None:
    import ray

    ray.init(
        address="local",
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        _node_ip_address=LOOPBACK,
        _temp_dir=folder,
        **settings,
    )
    os.write(answer, ray.get_runtime_context().gcs_address.encode())
    os.close(answer)
    sys.stdin.buffer.read()
    ray.shutdown()


def _end_session() -> None:
    """Wait for what was started to end, and kill what does not. We lead a session, and they are all in it."""
    deadline = time.monotonic() + END_SECONDS
    while (left := list(_others())) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _others() -> Iterator[int]:
    """Living processes of this session beside this one; none where the system has no /proc."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            if int(session) == os.getpid() and state != "Z" and stat.parent.name != str(os.getpid()):
                yield int(stat.parent.name)


if __name__ == "__main__":
    main()
