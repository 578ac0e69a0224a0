"""The actor that hosts one component. Its event loop is its own, in a thread that Ray does not know: the component
meets the same conditions as in a child process of the `local` runtime."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import queue
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ray

from miles_core import BuildContext, ComponentRef, ComponentServer, Reply
from miles_plugin_ray.cargo import Cargo, pack, unpack


@dataclass(frozen=True, slots=True)
class Instructions:
    """What an actor is told before anything else.

    path         the driver's import path
    folder       its working directory; kept to where it exists
    log          file that takes all that the process prints
    own          whether the cluster is the run's own
    environment  the variables that the runtime gave it; Ray adds some
    """

    path: Sequence[str]
    folder: str
    log: Path
    own: bool
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Arrival:
    """Who the actor is: its process, the node that it is on, and Ray's id of it."""

    pid: int
    node: str
    actor: str


_instructions: Instructions | None = None


def told() -> Instructions | None:
    """What this process was told when it is an actor of ours; None in any other. A driver that lives in an actor starts
    its own workers by it."""
    return _instructions


class Workplace:
    """Runs as a threaded actor: one thread listens (`replies`), others take what the driver says."""

    def prepare(self, told: Instructions) -> Arrival:
        """Make this process one of the driver's, before anything of a plugin is imported."""
        global _instructions
        _instructions = told
        sys.path[:0] = [entry for entry in told.path if entry not in sys.path]
        os.environ["PYTHONPATH"] = os.pathsep.join(told.path)
        with contextlib.suppress(OSError):  # another machine may not have it; what needs it says so
            os.chdir(told.folder)
        _speak_into(told.log)
        self._order = threading.Condition()
        self._next = 0
        self._replies: queue.SimpleQueue[Cargo | None] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="component", daemon=True).start()
        self._server = ComponentServer(self._answer)
        here = ray.get_runtime_context()
        return Arrival(os.getpid(), here.get_node_id(), here.get_actor_id() or "")

    def take(self, place: int, cargo: Cargo) -> None:
        """One tick of the driver. Ray may start calls out of order, so each says its place. The first brings what to
        build."""
        try:
            with self._order:
                self._order.wait_for(lambda: self._next == place)
                messages = unpack(cargo)
                if place == 0:
                    self._loop.call_soon_threadsafe(self._build, *messages)
                else:
                    self._loop.call_soon_threadsafe(self._server.take, messages)
                self._next += 1
                self._order.notify_all()
        except BaseException:  # the driver waits for replies alone: a death it will see
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    def replies(self) -> Iterator[Cargo]:
        """What the component answers, one item for each of its ticks, until it is closed."""
        while (cargo := self._replies.get()) is not None:
            yield cargo

    def close(self) -> None:
        """Let the component close. What that raises is in the log."""
        try:
            asyncio.run_coroutine_threadsafe(self._server.close(), self._loop).result()
        except Exception:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()

    def _answer(self, replies: list[Reply]) -> None:
        # Copied now: Ray reads them later, and arrays may be the component's own, which it goes on changing.
        body, large = pack(replies)
        self._replies.put((body, [pickle.PickleBuffer(bytes(buffer)) for buffer in large]))

    def _build(self, ref: ComponentRef, context: BuildContext) -> None:
        self._server.build(ref, context)


def _speak_into(log: Path) -> None:
    """Send everything that this process prints, its libraries and interpreter included, into the file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        stream.flush()
        os.dup2(descriptor, number)
    os.close(descriptor)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 - Ray's own writes elsewhere
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
