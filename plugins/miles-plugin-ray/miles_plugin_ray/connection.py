"""This process's connection to a Ray cluster. A process has one at most, so those who need it share it by count."""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar, cast

import ray

from miles_core import RequestError
from miles_plugin_ray import own_token
from miles_plugin_ray.own_cluster import OwnCluster, Size

AUTO = "auto"
DEAD_SECONDS = 10.0

Result = TypeVar("Result")


@dataclass(slots=True)
class _Shared:
    """The connection while somebody uses it. `own` is None for a cluster that was joined; `ours` is False for a
    connection that was there before, which is left as it is."""

    asked: str | None
    address: str
    own: OwnCluster | None
    ours: bool = True
    users: int = 0


_lock = threading.Lock()
_shared: _Shared | None = None


class Connection:
    """One user's share. Made in a thread: it blocks for seconds.

    `address` None is a cluster of its own, of `size`. `token` is the environment of a cluster that somebody else's
    process owns, when the person has not set it. Raises RequestError when there is no such cluster or this
    process already uses another, RunError when Ray does not start.
    """

    def __init__(
        self, address: str | None, size: Size, seconds: float, token: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        global _shared
        self._closed = False
        with _lock:
            if _shared is None:
                _shared = _connect(address, size, seconds, token)
            elif _shared.ours and _shared.asked != address:
                raise RequestError(
                    f"this process already uses the Ray cluster at {_shared.address}, and can use no second one",
                    where="runtime.address",
                    mend="close that run first, or start this one in a process of its own",
                )
            _shared.users += 1
            self.address = _shared.address
            self._cluster = _shared.own

    @property
    def own(self) -> bool:
        """Whether the cluster is one that this process started."""
        return self._cluster is not None

    @property
    def lives(self) -> bool:
        """False when a cluster of our own was killed: nothing of it is left, and whoever asks it waits in vain."""
        return self._cluster is None or self._cluster.lives

    def close(self) -> None:
        """Give the share back; the last one disconnects, and ends the cluster if it is our own. Idempotent."""
        global _shared
        with _lock:
            if self._closed or _shared is None:
                return
            self._closed = True
            _shared.users -= 1
            if _shared.users:
                return
            leaving, _shared = _shared, None
            try:
                if leaving.ours:
                    _leave(self.lives)
            finally:
                if leaving.own is not None:
                    leaving.own.close()
                own_token.use({})


def _leave(lives: bool) -> None:
    if lives:
        ray.shutdown()
        return
    with contextlib.suppress(TimeoutError):  # Ray asks the dead
        bounded(ray.shutdown, DEAD_SECONDS)


def _connect(address: str | None, size: Size, seconds: float, token: Mapping[str, str]) -> _Shared:
    if ray.is_initialized():
        return _Shared(address, ray.get_runtime_context().gcs_address, None, ours=False)
    own_token.use(own_token.of_this_process() if address is None else token)
    own = OwnCluster(size, seconds) if address is None else None
    try:
        return _Shared(address, _join(own.address if own else address or AUTO, seconds), own)
    except BaseException:
        if own is not None:
            own.close()
        raise


def _join(address: str, seconds: float) -> str:
    if address.startswith("ray://"):
        raise RequestError(
            f"{address} is the address of a Ray client server, which carries no answers to an event loop",
            where="runtime.address",
            mend="give host:port of the cluster's head (its GCS port, 6379 unless said otherwise)",
        )
    try:
        _knock(address, seconds)
        found: str = bounded(lambda: _init(address), seconds)
        return found
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise RequestError(
            f"no Ray cluster can be joined at {address!r}: {type(error).__name__}: {error}",
            where="runtime.address",
            mend="start one with `ray start --head`, or leave `address` out for a cluster of its own",
        ) from error


def _init(address: str) -> str:
    logging.getLogger("ray").setLevel(logging.ERROR)  # it warns of signal handlers that belong to the command
    ray.init(address=address, log_to_driver=False, configure_logging=False)
    found: str = ray.get_runtime_context().gcs_address
    return found


def _knock(address: str, seconds: float) -> None:
    """Raise OSError when nobody listens there: Ray itself would ask for minutes."""
    host, colon, port = address.rpartition(":")
    if colon:
        socket.create_connection((host.strip("[]"), int(port)), min(seconds, 10)).close()


def bounded(work: Callable[[], Result], seconds: float) -> Result:
    """What `work` returns or raises. TimeoutError when it takes longer; then it goes on in its thread, unheard."""
    done: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((work(), None))
        except BaseException as error:
            done.put((None, error))

    threading.Thread(target=run, name="ray", daemon=True).start()
    try:
        value, error = done.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"Ray did not answer within {seconds:g} s") from None
    if error is not None:
        raise error
    return cast("Result", value)
