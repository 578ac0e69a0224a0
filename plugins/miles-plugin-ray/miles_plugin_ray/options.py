"""What may stand beside `runtime: {use: ray}` and `transport: {use: ray-object-store}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from miles_core import Options, RecipeFacts, RuntimeOptions


class RayOptions(RuntimeOptions):
    address: str | None = Field(
        default=None,
        min_length=1,
        description='a cluster to join: host:port, or "auto" for the one of this machine (default: one of its own)',
    )
    placement: Literal["pack", "spread"] = Field(
        default="pack", description="engines and trainer on as few machines as possible, or on as many"
    )
    cpus_per_engine: PositiveFloat = Field(default=1, description="CPUs that each engine reserves")
    gpus_per_engine: NonNegativeFloat = Field(default=0, description="GPUs that each engine reserves")
    cpus_per_trainer: PositiveFloat = Field(default=1, description="CPUs that the trainer reserves")
    gpus_per_trainer: NonNegativeFloat = Field(default=0, description="GPUs that the trainer reserves")
    cpus_per_driver: PositiveFloat = Field(
        default=0.25, description="CPUs that a driver which lives in a worker reserves"
    )
    cpus: PositiveInt | None = Field(
        default=None,
        description="CPUs that may be reserved in a cluster of its own (default: any number, shared by all)",
    )
    object_store_mib: int | None = Field(
        default=None, ge=80, description="MiB of a cluster of its own for objects (default: Ray's choice)"
    )
    start_seconds: float = Field(
        default=60.0, gt=0, description="how long the cluster, a place in it and a process may each take to be there"
    )
    grace_seconds: float = Field(
        default=10.0, gt=0, description="how long a worker may take to end before it is killed"
    )
    environment: Mapping[str, str] = Field(default_factory=dict, description="environment variables of every worker")

    @model_validator(mode="after")
    def _one_cluster(self) -> RayOptions:
        sized = [name for name in ("cpus", "object_store_mib") if getattr(self, name) is not None]
        if self.address is not None and sized:
            raise ValueError(f"{' and '.join(sized)} size a cluster of its own, but `address` joins another one")
        return self

    def spans_machines(self) -> str:
        where = "of this machine" if self.address == "auto" else f"at {self.address}"
        return "" if self.address is None else f"the cluster {where} may be several machines"

    def check(self, facts: RecipeFacts) -> Iterable[str]:
        transports = facts.chosen.get("transport", ())
        reaches_one = "one-machine" in facts.capabilities.get("transport", frozenset())
        if self.address is not None and self.placement == "spread" and transports and reaches_one:
            yield (
                f"placement: spread puts engines and trainer on several machines, and transport {transports[0]!r} "
                "reaches only one: choose transport: {use: ray-object-store}, or placement: pack"
            )

    def card(self) -> Mapping[str, str]:
        where = "a cluster of its own on this machine" if self.address is None else f"the cluster at {self.address}"
        return {
            "processes": f"actors of {where}, {self.placement}ed" if self.placement == "pack" else f"actors of {where}"
        }


class ObjectStoreOptions(Options):
    bucket_mib: PositiveInt = Field(
        default=512, description="MiB of tensors in one object; a larger tensor has an object of its own"
    )
    seconds: float = Field(
        default=300.0, gt=0, description="how long the trainer waits for the store, and an engine for one object"
    )
