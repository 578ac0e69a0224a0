"""Where actors go: a bundle of resources for each, reserved together for those that start together."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from miles_core import ComponentRef, RequestError
from miles_plugin_ray.options import RayOptions

Resources = Mapping[str, float]
Strategy = Literal["PACK", "SPREAD", "STRICT_PACK"]

POLL_SECONDS = 0.5

_PREFIX = "miles-of-"

_LITTLE = 0.001
"""Of a machine's own resource, which thereby names the machine."""


@dataclass(frozen=True, slots=True)
class Place:
    """One bundle of a placement group: where one actor may be."""

    group: PlacementGroup
    index: int
    resources: Resources

    def actor_options(self) -> dict[str, Any]:
        """For `ActorClass.options`."""
        return {
            "num_cpus": self.resources.get("CPU", 0),
            "num_gpus": self.resources.get("GPU", 0),
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                placement_group=self.group, placement_group_bundle_index=self.index
            ),
        }


def resources_of(ref: ComponentRef, options: RayOptions) -> Resources:
    """What a worker reserves: trainer and driver their own, every other one an engine's."""
    if ref.kind == "driver":
        return {"CPU": options.cpus_per_driver}
    trains = ref.kind == "trainer"
    cpus = options.cpus_per_trainer if trains else options.cpus_per_engine
    gpus = options.gpus_per_trainer if trains else options.gpus_per_engine
    return {"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus}


class Places:
    """All places of one runtime. One that is given back is given out again, so that a worker that is started anew
    takes the place of the one that died."""

    def __init__(self, placement: Literal["pack", "spread"], seconds: float) -> None:
        self._strategy: Strategy = "SPREAD" if placement == "spread" else "PACK"
        self._made = 0
        self._seconds = seconds
        self._groups: list[PlacementGroup] = []
        self._free: list[Place] = []
        self._machine: str | None = None

    async def reserve(self, wanted: Sequence[Resources], *, one_machine: bool, grows: bool) -> list[Place]:
        """A place for each, in this order. `one_machine`: all of them, and all later ones, on the same machine.
        `grows`: the cluster may become larger. Raises RequestError, saying what was asked and what the cluster has,
        when they are not to be had in time."""
        if not grows and any(_asked(wanted, name) > _total(name) for name in ("CPU", "GPU")):
            raise _unsatisfied(wanted, self._strategy, 0)
        reused = [self._reuse(each) for each in wanted]
        new = [each for each, place in zip(wanted, reused, strict=True) if place is None]
        try:
            made = iter(await self._make(new, one_machine) if new else ())
        except BaseException:
            self._free += [place for place in reused if place is not None]
            raise
        return [place or next(made) for place in reused]

    def give_back(self, place: Place) -> None:
        self._free.append(place)

    def close(self) -> None:
        """Free everything that was reserved."""
        for group in self._groups:
            remove_placement_group(group)
        self._groups.clear()
        self._free.clear()

    def _reuse(self, wanted: Resources) -> Place | None:
        for place in self._free:
            if place.resources == wanted:
                self._free.remove(place)
                return place
        return None

    async def _make(self, wanted: Sequence[Resources], one_machine: bool) -> list[Place]:
        bundles = [dict(each) for each in wanted]
        if one_machine and self._machine is not None:
            bundles = [{**each, self._machine: _LITTLE} for each in bundles]
        strategy: Strategy = "STRICT_PACK" if one_machine else self._strategy
        group = placement_group(bundles, strategy=strategy, name=self._name())
        self._groups.append(group)
        if not await _reserved(group, self._seconds):
            self._groups.remove(group)
            remove_placement_group(group)
            raise _unsatisfied(wanted, strategy, self._seconds)
        if one_machine and self._machine is None:
            self._machine = await asyncio.to_thread(_machine_of, group)
        return [Place(group, index, each) for index, each in enumerate(wanted)]

    def _name(self) -> str:
        """In an actor its groups bear its name, by which they are found when it has died: Ray frees them only when the
        whole job ends. Elsewhere they have none."""
        self._made += 1
        actor = ray.get_runtime_context().get_actor_id()
        return f"{_PREFIX}{actor}-{os.getpid()}-{id(self)}-{self._made}" if actor else ""


def free_groups_of(actor: str) -> None:
    """Free what an actor that is no more had reserved. Blocks."""
    for number, facts in ray.util.placement_group_table().items():
        if facts["name"].startswith(f"{_PREFIX}{actor}-") and facts["state"] != "REMOVED":
            remove_placement_group(PlacementGroup(ray.PlacementGroupID.from_hex(number)))


async def _reserved(group: PlacementGroup, seconds: float) -> bool:
    """Asked again and again, since a thread that waits cannot be cancelled."""
    deadline = time.monotonic() + seconds
    while not await asyncio.to_thread(group.wait, min(POLL_SECONDS, seconds)):
        if time.monotonic() > deadline:
            return False
    return True


def _total(name: str) -> float:
    return float(sum(each["Resources"].get(name, 0) for each in _nodes()))


def _machine_of(group: PlacementGroup) -> str:
    """The resource that names the machine of a packed group."""
    (node,) = set(ray.util.placement_group_table(group)["bundles_to_node_id"].values())
    return next(f"node:{each['NodeManagerAddress']}" for each in _nodes() if each["NodeID"] == node)


def _unsatisfied(wanted: Sequence[Resources], strategy: Strategy, seconds: float) -> RequestError:
    asked = " + ".join(_words(each) for each in wanted)
    nodes = [each["Resources"] for each in _nodes()]
    has = "; ".join(f"machine {number}: {_words(each)}" for number, each in enumerate(nodes, 1)) or "no machine"
    free = _words(ray.available_resources())  # type: ignore[no-untyped-call]
    where = " on one machine" if strategy == "STRICT_PACK" else ""
    mend = "ask for less (runtime.cpus_per_engine, gpus_per_engine, …), fewer engine.replicas, or a larger cluster"
    if strategy == "STRICT_PACK" and len(nodes) > 1:
        mend += "; transport: {use: ray-object-store} lets engines and trainer be on several machines"
    late = f" within {seconds:g} s" if seconds else ""
    return RequestError(
        f"the workers could not be placed{late}: they ask for {asked}{where}, and the cluster has {has} "
        f"(free now: {free})",
        where="runtime",
        mend=mend,
    )


def _nodes() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [each for each in found if each["Alive"]]


def _words(resources: Resources) -> str:
    counted = [f"{resources[name]:g} {name}" for name in ("CPU", "GPU") if resources.get(name)]
    return ", ".join(counted) or "no CPU"


def _asked(wanted: Iterable[Resources], name: str) -> float:
    return sum(each.get(name, 0) for each in wanted)
