"""The `ray-object-store` transport: tensors go into Ray's object store once; each machine fetches them once."""

from __future__ import annotations

import asyncio
import atexit
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError

from miles_core import BuildContext, Delivery, Form, RunError, TensorInfo, UpdateTarget, WeightSource, WireTensor
from miles_plugin_ray import own_token
from miles_plugin_ray.connection import Connection
from miles_plugin_ray.options import ObjectStoreOptions
from miles_plugin_ray.own_cluster import Size
from miles_plugin_ray.shelf import NAMESPACE, Shelf

NAME = "ray-object-store"
JOIN_SECONDS = 60.0


class ObjectStoreTransport:
    """`miles_core.Transport`; which method runs where is said there.

    Workers of the `ray` runtime are in a cluster already. A process that is not starts one (trainer) or joins the
    trainer's (engine), so that the transport works under other runtimes of one machine too.
    """

    def __init__(self, options: ObjectStoreOptions, context: BuildContext) -> None:
        self._bucket = options.bucket_mib << 20
        self._seconds = options.seconds
        self._shelf: Any = None
        self._shelf_name = ""
        self._sent: set[int] = set()

    async def transfer(self, version: int, source: WeightSource, targets: tuple[UpdateTarget, ...]) -> None:
        try:
            delivery = await source.send(version)
            await asyncio.gather(*(target.load(delivery) for target in targets))
        finally:
            await source.release(version)

    def send(self, version: int, tensors: Iterable[WireTensor]) -> Delivery:
        _in_a_cluster()
        if self._shelf is None:
            self._shelf_name = f"weights-{uuid.uuid4().hex}"
            actor = ray.remote(Shelf).options(name=self._shelf_name, namespace=NAMESPACE, num_cpus=0)
            self._shelf = actor.remote()
        objects: list[list[dict[str, Any]]] = []
        references: list[Any] = []
        for bucket in _buckets(tensors, self._bucket):
            references.append(ray.put([tensor.data for tensor in bucket]))
            objects.append([_entry(tensor.info) for tensor in bucket])
        self._sent.add(version)
        ray.get(self._shelf.keep.remote(version, references), timeout=self._seconds)
        cluster = {"address": ray.get_runtime_context().gcs_address, "token": own_token.in_use()}
        address = {"cluster": cluster, "shelf": self._shelf_name, "version": version, "objects": objects}
        return Delivery(Form.TENSORS, NAME, address)

    def release(self, version: int) -> None:
        if version in self._sent:
            self._sent.discard(version)
            ray.get(self._shelf.drop.remote(version), timeout=self._seconds)

    def receive(self, delivery: Delivery) -> Iterator[WireTensor]:
        address = delivery.address
        _in_a_cluster(address["cluster"])
        version = address["version"]
        try:
            shelf = ray.get_actor(address["shelf"], NAMESPACE)
            references: list[Any] = ray.get(shelf.give.remote(version), timeout=self._seconds)
            if len(references) != len(address["objects"]):
                raise RunError(f"weight version {version} is no longer in the object store")
            for reference, entries in zip(references, address["objects"], strict=True):
                yield from _tensors(ray.get(reference, timeout=self._seconds), entries)
        except (RayError, ValueError) as error:  # ValueError: there is no actor of this name
            raise RunError(
                f"weight version {version} could not be fetched from Ray's object store: "
                f"{type(error).__name__}: {error}",
                where=f"transport {NAME}",
                mend="the trainer that sent it died, or transport.seconds is too short for this network",
            ) from error


def _tensors(arrays: list[Any], entries: list[Mapping[str, Any]]) -> Iterator[WireTensor]:
    for data, entry in zip(arrays, entries, strict=True):
        info = TensorInfo(entry["name"], tuple(entry["shape"]), entry["dtype"])
        if data.nbytes != info.bytes:
            raise RunError(f"tensor {info.name!r} arrived with {data.nbytes} bytes, not {info.bytes}")
        yield WireTensor(info, data)


def _entry(info: TensorInfo) -> dict[str, Any]:
    return {"name": info.name, "shape": list(info.shape), "dtype": info.dtype}


def _buckets(tensors: Iterable[WireTensor], limit: int) -> Iterator[list[WireTensor]]:
    """The tensors in order, in lists of up to `limit` bytes. What waits for others is copied: a trainer may use its
    memory again when it is asked for the next tensor."""
    bucket: list[WireTensor] = []
    size = 0
    for tensor in tensors:
        if bucket and size + tensor.data.nbytes > limit:
            yield bucket
            bucket, size = [], 0
        if tensor.data.nbytes >= limit:
            yield [tensor]
            continue
        bucket.append(WireTensor(tensor.info, np.array(tensor.data)))
        size += tensor.data.nbytes
    if bucket:
        yield bucket


def _in_a_cluster(cluster: Mapping[str, str] | None = None) -> None:
    """Connect this process until it ends, unless it is connected: to this cluster, or to one of its own."""
    if ray.is_initialized():
        return
    address, token = (cluster["address"], cluster["token"]) if cluster else (None, "")
    connection = Connection(address, Size(), JOIN_SECONDS, own_token.by_url(token))
    atexit.register(connection.close)
