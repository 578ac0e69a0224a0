"""A cluster of our own on this machine: the process that owns it (`head`), as its driver sees it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from miles_core import RunError, last_words, worker_environment
from miles_plugin_ray import own_token

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anyone
    "RAY_prestart_worker_first_driver": "0",  # idle processes that no actor of ours would use
    "RAY_enable_worker_prestart": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # who reserves no GPU sees what a child process would see
}
END_SECONDS = 15.0
UNCOUNTED = 10_000


@dataclass(frozen=True, slots=True)
class Size:
    """What a cluster of its own has. `cpus` None: as many as anybody asks for, since processes share the machine's, as
    child processes do. `object_store_mib` None: Ray's choice."""

    cpus: int | None = None
    object_store_mib: int | None = None

    def settings(self) -> Mapping[str, int]:
        """As keyword arguments of ray.init."""
        store = {} if self.object_store_mib is None else {"object_store_memory": self.object_store_mib << 20}
        return {"num_cpus": self.cpus or UNCOUNTED, **store}


class OwnCluster:
    """Started when it is made; gone when `close` returns, or when this process ends in whatever way."""

    def __init__(self, size: Size, seconds: float) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="miles-ray-head-")
        self._log = Path(self._scratch.name) / "head.log"
        reading, writing = os.pipe()
        with self._log.open("ab") as output:
            self._head = subprocess.Popen(
                [sys.executable, "-m", "miles_plugin_ray.head", str(writing), json.dumps(size.settings())],
                pass_fds=[writing],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C does not reach Ray's processes, and they are found by their session
                env=worker_environment({**SETTINGS, **own_token.of_this_process()}),
            )
        os.close(writing)
        try:
            self.address = self._wait(reading, seconds)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(reading)

    @property
    def lives(self) -> bool:
        return self._head.poll() is None

    def close(self) -> None:
        """End the cluster and wait for its end. Idempotent."""
        if self._head.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._head.stdin.close()
        try:
            self._head.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._head.kill()  # Ray's servers die with the process that started them
            self._head.wait()
        self._scratch.cleanup()

    def _wait(self, reading: int, seconds: float) -> str:
        """The address that the head writes. Raises RunError when it ends before that, or takes too long."""
        deadline = time.monotonic() + seconds
        while not select.select([reading], [], [], 0.2)[0]:
            if time.monotonic() > deadline:
                raise RunError(
                    f"Ray did not start on this machine within {seconds:g} s{last_words(self._log)}",
                    mend="raise runtime.start_seconds, or look what keeps the machine busy",
                )
        if address := os.read(reading, 1000).decode():
            return address
        self._head.wait(END_SECONDS)
        raise RunError(
            f"Ray could not start on this machine{last_words(self._log)}",
            mend="if a node timed out, the machine may have been busy: try again; its log is above",
        )
