"""The `shared-memory` transport: one anonymous segment that trainer and engines of one machine map.

The segment is a memory file without a name (`memfd`): it is gone with the processes that map it, whatever kills them.
Where the system has no memfd, an unlinked-on-release temporary file takes its place.
"""

from __future__ import annotations

import asyncio
import functools
import mmap
import os
import socket
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from miles_core.contracts.component import BuildContext
from miles_core.contracts.options import NoOptions
from miles_core.contracts.transport import Delivery, Form, TensorInfo, UpdateTarget, WeightSource, WireTensor
from miles_core.errors import RunError

NAME = "shared-memory"
_ALIGNMENT = 64


class SharedMemoryTransport:
    """`contracts.transport.Transport`; which method runs where is said there."""

    def __init__(self, options: NoOptions, context: BuildContext) -> None:
        self._segments: dict[int, tuple[int, Path | None]] = {}

    async def transfer(self, version: int, source: WeightSource, targets: tuple[UpdateTarget, ...]) -> None:
        try:
            delivery = await source.send(version)
            await asyncio.gather(*(target.load(delivery) for target in targets))
        finally:
            await source.release(version)

    def send(self, version: int, tensors: Iterable[WireTensor]) -> Delivery:
        descriptor, path = _new_segment(version)
        self._segments[version] = (descriptor, path)
        entries: list[dict[str, Any]] = []
        end = 0
        for tensor in tensors:
            start = -(-end // _ALIGNMENT) * _ALIGNMENT
            end = start + tensor.data.nbytes
            _write(descriptor, tensor.data, start)
            info = tensor.info
            entries.append({"name": info.name, "shape": list(info.shape), "dtype": info.dtype, "at": start})
        os.truncate(descriptor, end)
        where = str(path) if path else f"/proc/{os.getpid()}/fd/{descriptor}"
        address = {"path": where, "machine": _machine(), "bytes": end, "version": version, "tensors": entries}
        return Delivery(Form.TENSORS, NAME, address)

    def release(self, version: int) -> None:
        descriptor, path = self._segments.pop(version, (None, None))
        if descriptor is not None:
            os.close(descriptor)
        if path is not None:
            path.unlink(missing_ok=True)

    def receive(self, delivery: Delivery) -> Iterator[WireTensor]:
        address = delivery.address
        if address["machine"] != _machine():  # its path would name nothing here, or something else
            raise RunError(
                f"version {address['version']} lies in the memory of another machine or container",
                where="transport shared-memory",
                mend="place trainer and engines on one machine, or choose a transport that crosses machines",
            )
        with open(address["path"], "rb") as segment:  # noqa: PTH123  (a /proc descriptor, not a path of ours)
            size = os.fstat(segment.fileno()).st_size
            if size != address["bytes"]:
                raise RunError(f"the segment of version {address['version']} has {size} bytes, not {address['bytes']}")
            whole = mmap.mmap(segment.fileno(), size, access=mmap.ACCESS_READ)
        data = np.frombuffer(whole, dtype=np.uint8)
        for entry in address["tensors"]:
            info = TensorInfo(entry["name"], tuple(entry["shape"]), entry["dtype"])
            yield WireTensor(info, data[entry["at"] : entry["at"] + info.bytes])


@functools.cache
def _machine() -> str:
    """What processes that see each other's descriptors have in common: a kernel's boot and a PID namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # not a Linux: one file system is one machine
        return socket.gethostname()


def _new_segment(version: int) -> tuple[int, Path | None]:
    if hasattr(os, "memfd_create"):
        return os.memfd_create(f"miles-weights-{version}", os.MFD_CLOEXEC), None
    descriptor, path = tempfile.mkstemp(prefix=f"miles-weights-{version}-")
    return descriptor, Path(path)


def _write(descriptor: int, data: np.ndarray[Any, Any], at: int) -> None:
    """Write all bytes at an offset: a single pwrite takes at most 2 GiB."""
    left = np.ascontiguousarray(data).data.cast("B")
    while left.nbytes:
        written = os.pwrite(descriptor, left[: 2**30], at)
        left = left[written:]
        at += written
