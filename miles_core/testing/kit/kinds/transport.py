"""Checks of the kind `transport`. See `contracts.transport.Transport`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from miles_core.contracts.transport import Delivery, Form, TensorInfo, WireTensor
from miles_core.errors import MilesError, RunError
from miles_core.testing.kit.bench_transport import FailingTarget, HangingTarget, Source, Target
from miles_core.testing.kit.check import Grade, check, expect, fail, inapplicable
from miles_core.testing.kit.receiving import fingerprint, received_apart
from miles_core.testing.kit.subject import ComponentSubject

KIND = "transport"
SHAPES: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("float32", (512, 300)), ("float32", ()), ("float32", (0, 7)), ("uint8", (1,)), ("int8", (7,)),
    ("bfloat16", (3, 5)), ("float16", (11,)), ("float64", (2, 2, 2)), ("int64", (3,)), ("float8_e4m3fn", (13,)),
    ("float32", (1,)),
)  # fmt: skip
"""Large and small, odd and empty: what breaks offsets and alignment."""


@check(KIND, Grade.SILVER, "a delivery is JSON data that names the transport")
def describes_a_delivery(subject: ComponentSubject) -> None:
    transport = subject.build()
    delivery = transport.send(1, wires())
    try:
        expect(isinstance(delivery, Delivery), f"send gave {delivery!r:.100}", "return a miles_core.Delivery")
        expect(
            delivery.transport, "the delivery does not say whose it is", "give Delivery.transport the transport's name"
        )
        try:
            same = json.loads(json.dumps(delivery.address)) == delivery.address
        except TypeError as error:
            fail(f"the address is no JSON data: {error}", "put only strings, numbers, lists and dicts into it")
        expect(same, "the address is another one after JSON", "use lists and string keys, no tuples or numbers as keys")
    finally:
        transport.release(1)


@check(KIND, Grade.GOLD, "what one process sends, another receives: every bit, shape and dtype, in order")
def brings_every_bit_to_another_process(subject: ComponentSubject) -> None:
    transport = subject.build()
    for version, tensors in ((1, wires()), (2, wires(seed=2)), (1, wires(seed=3))):
        delivery = transport.send(version, iter(tensors))
        try:
            _check_received(subject, delivery, tensors)
        finally:
            transport.release(version)


@check(KIND, Grade.GOLD, "the sender may change its weights once send has returned")
def is_a_snapshot(subject: ComponentSubject) -> None:
    transport = subject.build()
    tensors = wires()
    wanted = [fingerprint(wire) for wire in tensors]
    delivery = transport.send(1, tensors)
    for wire in tensors:
        wire.data[:] = 255 - wire.data
    got = [fingerprint(wire) for wire in subject.build().receive(delivery)]
    transport.release(1)
    expect(
        got == wanted,
        "tensors that the trainer changed after send arrived changed",
        "copy the bytes in send: the trainer's arrays are its live weights",
    )


@check(KIND, Grade.GOLD, "a delivery that was cut off or damaged is refused with RunError")
def refuses_damage(subject: ComponentSubject) -> None:
    for damage, mend in (
        (_cut, "compare the length with the one that send wrote down"),
        (_flip, "write a checksum for each tensor in send, and compare it in receive"),
    ):
        transport = subject.build()
        tensors = wires()
        delivery = transport.send(1, tensors)
        try:
            done = damage(delivery)
            if done is None:
                continue
            _check_refused(subject, delivery, done, mend)
        finally:
            transport.release(1)


@check(KIND, Grade.GOLD, "release is idempotent, also for versions that were never sent, and frees what send made")
def releases(subject: ComponentSubject) -> None:
    transport = subject.build()
    transport.release(7)
    delivery = transport.send(1, wires())
    files = _files(delivery)
    transport.release(1)
    transport.release(1)
    if delivery.form is Form.TENSORS:
        left = [str(file) for file in files if file.exists()]
        expect(not left, f"after release {left[:2]} are still there", "delete and close in release what send made")


@check(KIND, Grade.GOLD, "a transfer brings the version to every engine, and then releases it")
async def transfers_to_every_engine(subject: ComponentSubject) -> None:
    for count in (1, 3):
        driver = subject.build()
        source = Source(subject.build(), wires())
        targets = tuple(Target(f"engine-{n}", subject.build()) for n in range(count))
        await driver.transfer(5, source, targets)
        wanted = [fingerprint(wire) for wire in source.tensors]
        for target in targets:
            expect(
                target.received == wanted,
                f"of {count} engines, {target.name} received {len(target.received)} of {len(wanted)} tensors",
                "call load of every target with the delivery (all at once, with asyncio.gather)",
            )
        expect(source.sent == [5], f"send was called for {source.sent}", "ask the source once, for this version")
        expect(5 in source.released, "the version was not released", "release in a finally clause of transfer")


@check(KIND, Grade.GOLD, "when an engine or the trainer fails, or it is cancelled, a transfer raises and releases")
async def releases_after_failures(subject: ComponentSubject) -> None:
    mend = "put send and the loads into try, release into finally, and let the exception pass"
    good, bad = Target("engine-0", subject.build()), FailingTarget("engine-1")
    source = Source(subject.build(), wires())
    await _expect_failure(subject, source, (good, bad), "one of two engines failed", mend)
    source = Source(subject.build(), wires(), fail=True)
    await _expect_failure(subject, source, (good,), "the trainer's send failed", mend)
    source = Source(subject.build(), wires())
    going = asyncio.create_task(subject.build().transfer(5, source, (HangingTarget("engine-0"),)))
    await asyncio.sleep(0.1)
    going.cancel()
    await asyncio.wait([going], timeout=10)
    expect(going.done(), "a cancelled transfer does not end", mend)
    expect(5 in source.released, "a cancelled transfer left the version held", mend)


def wires(seed: int = 1) -> list[WireTensor]:
    """Tensors of all sorts with random bytes."""
    random = np.random.default_rng(seed)
    infos = [TensorInfo(f"layer.{n}.weight", shape, dtype) for n, (dtype, shape) in enumerate(SHAPES)]
    return [WireTensor(info, random.integers(0, 256, info.bytes, np.uint8)) for info in infos]


def _check_received(subject: ComponentSubject, delivery: Delivery, tensors: list[WireTensor]) -> None:
    got, words = received_apart(subject.ref(), delivery)
    if got is None:
        fail(f"in another process receive failed: {words}", "put all that a stranger needs into the delivery's address")
    wanted = [fingerprint(wire) for wire in tensors]
    if got == wanted:
        return
    for place, (one, other) in enumerate(zip(wanted, got, strict=False)):
        if one != other:
            fail(
                f"tensor {place} was sent as {one[:3]} and arrived as {other[:3]}"
                + (" with other bytes" if one[:3] == other[:3] else ""),
                "keep order, names, shapes and dtypes, and copy exactly the tensor's bytes",
            )
    fail(f"{len(wanted)} tensors were sent, {len(got)} arrived", "yield every tensor, also those of 0 bytes")


def _check_refused(subject: ComponentSubject, delivery: Delivery, done: str, mend: str) -> None:
    try:
        for _ in subject.build().receive(delivery):
            pass
    except RunError:
        return
    except MilesError as error:
        fail(f"{done}, receive raised {type(error).__name__}: {error}", f"raise miles_core.RunError: {mend}")
    except Exception as error:
        fail(f"{done}, receive raised {type(error).__name__}: {error}", f"raise miles_core.RunError: {mend}")
    fail(f"{done}, and receive took it for good", f"raise miles_core.RunError: {mend}")


async def _expect_failure(
    subject: ComponentSubject, source: Source, targets: tuple[Any, ...], what: str, mend: str
) -> None:
    try:
        await subject.build().transfer(5, source, targets)
    except Exception:
        expect(5 in source.released, f"{what}, and the version was not released", mend)
        return
    fail(f"{what}, and transfer returned as if all were well", mend)


def _files(delivery: Delivery) -> list[Path]:
    """Existing files that the address names, below folders as well."""
    named = [Path(text) for text in _strings(delivery.address) if text.startswith("/") and Path(text).exists()]
    return [file for path in named for file in (sorted(path.rglob("*")) if path.is_dir() else [path]) if file.is_file()]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)


def _largest(delivery: Delivery) -> Path | None:
    files = _files(delivery)
    return max(files, key=lambda file: file.stat().st_size) if files else None


def _cut(delivery: Delivery) -> str | None:
    """Shorten the largest file by a third; None when there is none to be reached."""
    file = _largest(delivery)
    if file is None:
        inapplicable("its delivery names no file: the kit cannot damage what it does not see")
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size * 2 // 3)
    return "a third of the data was cut off"


def _flip(delivery: Delivery) -> str | None:
    """Change one byte in the middle of the largest file. Memory of two processes is not damaged on the way."""
    file = _largest(delivery)
    if file is None or str(file).startswith(("/proc/", "/dev/shm/")):
        return None
    with file.open("r+b") as opened:
        opened.seek(file.stat().st_size // 2)
        byte = opened.read(1)
        opened.seek(-1, 1)
        opened.write(bytes([byte[0] ^ 255]))
    return "one byte was changed"
