"""The engine's side of a transport, in a process of its own: `python -m miles_core.testing.kit.receiving`.

Standard input brings a pickled (ComponentRef, Delivery); standard output gets one JSON list with name, shape, dtype and
the sha256 of the bytes of each tensor, in the order of their arrival.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
from typing import Any

from miles_core.contracts.component import BuildContext, ComponentRef
from miles_core.contracts.transport import Delivery, WireTensor
from miles_core.testing.kit.apart import python

RECEIVE = "from miles_core.testing.kit.receiving import main; main()"


def received_apart(ref: ComponentRef, delivery: Delivery) -> tuple[list[list[Any]] | None, str]:
    """What a fresh process received, or None and the end of what it said."""
    ended = python(RECEIVE, stdin=pickle.dumps((ref, delivery)))
    if ended.status:
        return None, ended.last_words
    return json.loads(ended.output.splitlines()[-1]), ""


def fingerprint(wire: WireTensor) -> list[Any]:
    """Name, shape, dtype and a hash of the bytes: JSON data."""
    info = wire.info
    return [info.name, list(info.shape), info.dtype, hashlib.sha256(wire.data.tobytes()).hexdigest()]


def main() -> None:
    ref, delivery = pickle.loads(sys.stdin.buffer.read())
    receiver = ref.build(BuildContext(1, "engine-0"))
    print(json.dumps([fingerprint(wire) for wire in receiver.receive(delivery)]))
