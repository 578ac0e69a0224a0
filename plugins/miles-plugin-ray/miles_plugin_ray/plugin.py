"""What this package registers."""

from __future__ import annotations

from collections.abc import Iterable

from miles_core import Component, hookimpl

SMALL = {"cpus": 1, "object_store_mib": 80, "cpus_per_engine": 0.25, "cpus_per_trainer": 0.25}
"""A cluster that starts on the smallest machine."""


@hookimpl
def miles_runtimes() -> Iterable[Component]:
    return [
        Component(
            "ray",
            factory="miles_plugin_ray.runtime:RayRuntime",
            options="miles_plugin_ray.options:RayOptions",
            summary="Engines and trainer as actors of a Ray cluster, its own or one that it joins",
            example=SMALL,
        )
    ]


@hookimpl
def miles_transports() -> Iterable[Component]:
    return [
        Component(
            "ray-object-store",
            factory="miles_plugin_ray.object_store:ObjectStoreTransport",
            options="miles_plugin_ray.options:ObjectStoreOptions",
            summary="Weights through Ray's object store, from machine to machine",
        )
    ]
