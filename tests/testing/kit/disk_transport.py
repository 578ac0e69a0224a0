"""A transport over a folder of this machine, and what can be wrong with it; another process imports it."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import ClassVar

import numpy as np

from miles_core import Delivery, Form, RunError, TensorInfo, WireTensor


class Disk:
    """Good: one file of bytes and an index with lengths and checksums."""

    def __init__(self, options, context):
        self._folders = {}

    async def transfer(self, version, source, targets):
        try:
            delivery = await source.send(version)
            await asyncio.gather(*(target.load(delivery) for target in targets))
        finally:
            await source.release(version)

    def send(self, version, tensors):
        folder = self._folders[version] = Path(tempfile.mkdtemp(prefix="made-up-transport-"))
        entries = []
        with (folder / "data").open("wb") as data:
            for tensor in tensors:
                entries.append(self.entry(tensor, data.tell()))
                data.write(tensor.data.tobytes())
        (folder / "index").write_text(json.dumps(entries))
        return Delivery(Form.TENSORS, "disk", {"folder": str(folder)})

    def entry(self, tensor, at):
        info = tensor.info
        return [info.name, list(info.shape), info.dtype, at, zlib.crc32(tensor.data.tobytes())]

    def release(self, version):
        folder = self._folders.pop(version, None)
        if folder is not None:
            shutil.rmtree(folder)

    def receive(self, delivery):
        folder = Path(delivery.address["folder"])
        data = np.fromfile(folder / "data", np.uint8)
        for name, shape, dtype, at, checksum in json.loads((folder / "index").read_text()):
            info = TensorInfo(name, tuple(shape), dtype)
            piece = data[at : at + info.bytes]
            self.check(info, piece, checksum)
            yield WireTensor(info, piece)

    def check(self, info, piece, checksum):
        if piece.nbytes != info.bytes or zlib.crc32(piece.tobytes()) != checksum:
            raise RunError(f"{info.name} is damaged")


class Tuples(Disk):
    def send(self, version, tensors):
        delivery = super().send(version, tensors)
        return Delivery(Form.TENSORS, "disk", {**delivery.address, "versions": (version,)})


class InMemory(Disk):
    """Keeps tensors where only this process finds them."""

    kept: ClassVar = {}

    def send(self, version, tensors):
        self.kept[version] = list(tensors)
        return Delivery(Form.TENSORS, "memory", {"version": version})

    def receive(self, delivery):
        yield from self.kept[delivery.address["version"]]

    def release(self, version):
        self.kept.pop(version, None)


class NoEmptyTensors(Disk):
    def send(self, version, tensors):
        return super().send(version, [tensor for tensor in tensors if tensor.data.nbytes])


class Flattening(Disk):
    def entry(self, tensor, at):
        return [tensor.info.name, [tensor.data.nbytes], "uint8", *super().entry(tensor, at)[3:]]


class Sorted(Disk):
    def receive(self, delivery):
        yield from sorted(super().receive(delivery), key=lambda wire: wire.info.bytes)


class Trusting(Disk):
    def check(self, info, piece, checksum):
        if piece.nbytes != info.bytes:
            raise RunError(f"{info.name} is cut off")


class Careless(Disk):
    def check(self, info, piece, checksum):
        pass


class OtherError(Disk):
    def check(self, info, piece, checksum):
        assert zlib.crc32(piece.tobytes()) == checksum


class ReleasesOnce(Disk):
    def release(self, version):
        shutil.rmtree(self._folders.pop(version))


class Hoarding(Disk):
    def release(self, version):
        self._folders.pop(version, None)


class FirstOnly(Disk):
    async def transfer(self, version, source, targets):
        await super().transfer(version, source, targets[:1])


class NeverReleases(Disk):
    async def transfer(self, version, source, targets):
        delivery = await source.send(version)
        await asyncio.gather(*(target.load(delivery) for target in targets))


class ReleasesWhenAllIsWell(Disk):
    async def transfer(self, version, source, targets):
        await NeverReleases.transfer(self, version, source, targets)
        await source.release(version)


class Swallowing(Disk):
    async def transfer(self, version, source, targets):
        delivery = await source.send(version)
        await asyncio.gather(*(target.load(delivery) for target in targets), return_exceptions=True)
        await source.release(version)


class ForgetsAFailedSend(Disk):
    async def transfer(self, version, source, targets):
        delivery = await source.send(version)
        try:
            await asyncio.gather(*(target.load(delivery) for target in targets))
        finally:
            await source.release(version)
