"""Checks of the kind `precision`. See `contracts.transport.Precision`."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np

from miles_core.contracts.transport import DTYPE_BYTES, TensorInfo, WireTensor
from miles_core.errors import RequestError
from miles_core.testing.kit.check import Grade, check, expect, inapplicable
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.sequence import Array

KIND = "precision"
SHAPES: tuple[tuple[int, ...], ...] = ((256, 128), (128,), (3, 5), (1,), ())
MANTISSA = MappingProxyType({"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7})
"""Bits after the leading one. Rounding to nearest is off by at most half a unit of the last one."""

SMALLEST_EXPONENT = MappingProxyType({"float64": -1022, "float32": -126, "float16": -14, "bfloat16": -126})
"""Of the smallest normal number."""


@check(KIND, Grade.SILVER, "it takes a trainer's float32 or bfloat16 matrices")
def takes_matrices_of_weights(subject: ComponentSubject) -> None:
    component = subject.build()
    taken = [dtype for dtype in ("float32", "bfloat16") if _taken(component, _wire(dtype, (256, 128)))]
    expect(taken, "it refuses float32 and bfloat16 matrices", "take at least one of them: it is what trainers hold")


@check(KIND, Grade.GOLD, "what encode gives is what layout said: names, shapes, dtypes, order, and as many bytes")
def keeps_its_layout(subject: ComponentSubject) -> None:
    component = subject.build()
    for wire in _every_wire(component):
        said, given = list(component.layout(wire.info)), list(component.encode(wire))
        expect(said, f"layout of {_title(wire)} is empty", "name at least one tensor for each that is taken")
        expect(
            [w.info for w in given] == said,
            f"{_title(wire)}: layout says {said}, encode gives {[w.info for w in given]}",
            "make encode yield the tensors of layout, in its order: engines are told the layout before",
        )
        for each in given:
            _check_bytes(each)
        names = [info.name for info in said]
        expect(
            len(set(names)) == len(names), f"{_title(wire)}: layout names {names}", "give each tensor a name of its own"
        )


@check(KIND, Grade.GOLD, "the same tensor gives the same bytes, is not changed, and may be read-only memory")
def repeats_itself_and_changes_nothing(subject: ComponentSubject) -> None:
    component, other = subject.build(), subject.build()
    for wire in _every_wire(component):
        before = wire.data.tobytes()
        wire.data.flags.writeable = False  # what a trainer sends may be its live weights
        first, second = ([w.data.tobytes() for w in one.encode(wire)] for one in (component, other))
        expect(
            first == second,
            f"{_title(wire)}: two calls gave different bytes",
            "round to nearest, without random numbers or state: conversion, trainer and engine must agree bit by bit",
        )
        expect(wire.data.tobytes() == before, f"{_title(wire)} was changed", "write into memory of your own")


@check(KIND, Grade.GOLD, "values are off by no more than half a unit in the last place of its format")
def rounds_to_nearest(subject: ComponentSubject) -> None:
    component = subject.build()
    tried = 0
    for dtype in ("float32", "bfloat16"):
        values = _values(dtype)
        wire = WireTensor(TensorInfo("w", values.shape, dtype), _bytes(values, dtype))
        if not _taken(component, wire):
            continue
        given = list(component.encode(wire))
        if len(given) != 1 or given[0].info.dtype not in MANTISSA or given[0].info.shape != wire.info.shape:
            continue
        tried += 1
        _check_rounding(values, given[0])
    if not tried:
        inapplicable("its format has scales beside the values, or another layout: no general reference can read it")


@check(KIND, Grade.GOLD, "a dtype that it does not take is refused with RequestError, by layout and by encode alike")
def refuses_other_dtypes(subject: ComponentSubject) -> None:
    component = subject.build()
    for dtype in ("no-such-dtype", *DTYPE_BYTES):
        info = TensorInfo("w", (4, 4), dtype)
        wire = WireTensor(info, np.zeros(16 * DTYPE_BYTES.get(dtype, 1), np.uint8))
        taken = {"layout": _accepted(component.layout, info, dtype), "encode": _accepted(component.encode, wire, dtype)}
        expect(
            taken["layout"] == taken["encode"],
            f"dtype {dtype}: layout takes it: {taken['layout']}, encode takes it: {taken['encode']}",
            "let encode begin with layout, so that both refuse the same",
        )
        expect(
            dtype in DTYPE_BYTES or not taken["layout"],
            "it takes a tensor of dtype 'no-such-dtype'",
            "raise miles_core.RequestError for every dtype that it was not written for: nothing is converted silently",
        )


def _accepted(method: Any, given: Any, dtype: str) -> bool:
    """Whether the call took it. Anything but RequestError is a failure."""
    try:
        list(method(given))
    except RequestError:
        return False
    except Exception as error:
        expect(
            False,
            f"{method.__name__} of a tensor of dtype {dtype} raised {type(error).__name__}: {error}",
            "raise miles_core.RequestError, naming the tensor and its dtype",
        )
    return True


def _taken(component: Any, wire: WireTensor) -> bool:
    try:
        list(component.layout(wire.info))
    except RequestError:
        return False
    return True


def _every_wire(component: Any) -> list[WireTensor]:
    """Those of all float dtypes and shapes that it takes."""
    wires = [_wire(dtype, shape) for dtype in MANTISSA for shape in SHAPES]
    return [wire for wire in wires if _taken(component, wire)]


def _wire(dtype: str, shape: tuple[int, ...]) -> WireTensor:
    values = np.random.default_rng(3).standard_normal(shape, np.float32)
    return WireTensor(TensorInfo("model.layers.0.mlp.up_proj.weight", shape, dtype), _bytes(values, dtype))


def _bytes(values: Array, dtype: str) -> Array:
    """The values as that dtype holds them, bfloat16 by cutting float32 in half."""
    flat = np.ascontiguousarray(values.reshape(-1))
    if dtype == "bfloat16":
        flat = (flat.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        flat = flat.astype(dtype)
    return flat.view(np.uint8).copy()


def _values(dtype: str) -> Array:
    """[n] values that the dtype holds exactly: of many sizes, near ties of coarser formats, zeros of both signs."""
    random = np.random.default_rng(4)
    spread = random.standard_normal(4000) * np.exp2(random.integers(-12, 12, 4000))
    ties = (1 + (np.arange(512) + 0.5) / 128) * np.exp2(np.arange(512) % 5)
    values = np.concatenate([spread, ties, [0.0, -0.0, 1.0, -1.0, 2.0**-14]]).astype(np.float32)
    return _decode(_bytes(values, dtype), dtype).astype(np.float32)


def _decode(data: Array, dtype: str) -> Array:
    """float64 values of bytes."""
    if dtype == "bfloat16":
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return data.view(dtype).astype(np.float64)


def _check_rounding(values: Array, given: WireTensor) -> None:
    dtype, exact = given.info.dtype, values.astype(np.float64)
    decoded = _decode(np.ascontiguousarray(given.data), dtype)
    exponent = np.floor(np.log2(np.abs(exact), out=np.zeros_like(exact), where=exact != 0))
    exponent = np.maximum(exponent, SMALLEST_EXPONENT[dtype])  # below it, units are all the same
    allowed = np.exp2(exponent - MANTISSA[dtype] - 1)
    off = np.abs(decoded - exact)
    worst = int((off - allowed).argmax())
    expect(
        (off <= allowed).all(),
        f"{exact[worst]!r} became {decoded[worst]!r} in {dtype}: {off[worst] / (2 * allowed[worst]):.2f} units of the "
        "last place away, at most 0.5 are possible",
        "round to nearest, ties to even; cutting the lower bits off is no rounding",
    )
    signs = np.signbit(decoded) == np.signbit(exact)
    expect(signs.all(), "a sign is lost, that of -0.0 perhaps", "keep the sign bit")


def _check_bytes(wire: WireTensor) -> None:
    data = wire.data
    expect(
        isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 1 and data.flags.c_contiguous,
        f"the data of {wire.info.name} is {getattr(data, 'dtype', type(data).__name__)} {getattr(data, 'shape', '')}",
        "give the bytes as a contiguous one-dimensional array: np.ascontiguousarray(x).reshape(-1).view(np.uint8)",
    )
    expect(
        data.nbytes == wire.info.bytes,
        f"{wire.info.name} has {data.nbytes} bytes, {wire.info.shape} of {wire.info.dtype} has {wire.info.bytes}",
        "make data as long as shape and dtype say",
    )


def _title(wire: WireTensor) -> str:
    return f"a {wire.info.dtype} tensor {list(wire.info.shape)}"
