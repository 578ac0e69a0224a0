"""Broken transports and precisions: each check catches what it is for."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from bench_trying import assert_caught, assert_passes
from trying import try_check

from miles_core.errors import RequestError
from miles_core.testing.kit.run import all_checks
from miles_core.weights.bf16 import Bf16
from miles_core.weights.fp32 import Fp32

counter = itertools.count(1)

BROKEN_TRANSPORTS = [
    ("describes-a-delivery", "Tuples"),
    ("brings-every-bit-to-another-process", "InMemory"),
    ("brings-every-bit-to-another-process", "NoEmptyTensors"),
    ("brings-every-bit-to-another-process", "Flattening"),
    ("brings-every-bit-to-another-process", "Sorted"),
    ("is-a-snapshot", "InMemory"),
    ("refuses-damage", "Trusting"),
    ("refuses-damage", "Careless"),
    ("refuses-damage", "OtherError"),
    ("releases", "ReleasesOnce"),
    ("releases", "Hoarding"),
    ("transfers-to-every-engine", "FirstOnly"),
    ("transfers-to-every-engine", "NeverReleases"),
    ("releases-after-failures", "ReleasesWhenAllIsWell"),
    ("releases-after-failures", "Swallowing"),
    ("releases-after-failures", "ForgetsAFailedSend"),
]


class RefusesAll(Fp32):
    def layout(self, info):
        raise RequestError("no")


class OtherNames(Fp32):
    def encode(self, tensor):
        (wire,) = super().encode(tensor)
        return [replace(wire, info=replace(wire.info, name=f"{wire.info.name}.q"))]


class Short(Bf16):
    def encode(self, tensor):
        return [replace(wire, data=wire.data[:-1]) for wire in super().encode(tensor)]


class NotBytes(Fp32):
    def encode(self, tensor):
        return [replace(wire, data=wire.data.view(np.float32)) for wire in super().encode(tensor)]


class Stochastic(Bf16):
    def encode(self, tensor):
        (wire,) = super().encode(tensor)
        data = wire.data.copy()
        data[:1] = next(counter) % 256
        return [replace(wire, data=data)]


class InPlace(Fp32):
    def encode(self, tensor):
        tensor.data[:] = 0
        return super().encode(tensor)


class Truncating(Bf16):
    def encode(self, tensor):
        (info,) = self.layout(tensor.info)
        if tensor.info.dtype == "bfloat16":
            return [tensor]
        return [replace(tensor, info=info, data=np.ascontiguousarray(tensor.data.reshape(-1, 2, 2)[:, 1]).reshape(-1))]


class TakesAnything(Fp32):
    def layout(self, info):
        return (info,)


class KeyErrors(Fp32):
    def layout(self, info):
        return ({"float32": info}[info.dtype],)


class Disagreeing(Fp32):
    def encode(self, tensor):
        return (tensor,)


BROKEN_PRECISIONS = [
    ("takes-matrices-of-weights", RefusesAll),
    ("keeps-its-layout", OtherNames),
    ("keeps-its-layout", Short),
    ("keeps-its-layout", NotBytes),
    ("repeats-itself-and-changes-nothing", Stochastic),
    ("repeats-itself-and-changes-nothing", InPlace),
    ("rounds-to-nearest", Truncating),
    ("refuses-other-dtypes", TakesAnything),
    ("refuses-other-dtypes", KeyErrors),
    ("refuses-other-dtypes", Disagreeing),
]


@pytest.mark.parametrize(("name", "broken"), BROKEN_TRANSPORTS)
def test_broken_transports(name, broken):
    assert_caught(try_check(f"transport/{name}", f"disk_transport:{broken}"))


@pytest.mark.parametrize(("name", "broken"), BROKEN_PRECISIONS)
def test_broken_precisions(name, broken):
    finding = try_check(f"precision/{name}", broken)
    if broken is InPlace:  # numpy itself refuses to write into memory that is read-only
        assert "read-only" in finding.detail
        return
    assert_caught(finding)


@pytest.mark.parametrize(("kind", "good"), [("transport", "disk_transport:Disk"), ("precision", Bf16)])
def test_a_good_one_passes(kind, good):
    for each in all_checks():
        if each.kind == kind:
            assert_passes(try_check(each.id, good))
