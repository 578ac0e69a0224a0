"""Messages as Ray carries them: small ones inside the call, large arrays beside it, in the object store.

Both ends are our own processes of one cluster. Arrays arrive writable, as they do in the `local` runtime: Ray's own
would be read-only views of the store, so the large ones are copied once.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

LARGE_BYTES = 1 << 16

Cargo = tuple[bytes, list[Any]]
"""A pickle, and the buffers that it leaves out."""


def pack(messages: Sequence[Any]) -> Cargo:
    """Raises what pickling raises."""
    large: list[pickle.PickleBuffer] = []

    def stays_inside(buffer: pickle.PickleBuffer) -> bool:
        with buffer.raw() as raw:
            if raw.nbytes < LARGE_BYTES:
                return True
        large.append(buffer)
        return False

    return pickle.dumps(messages, protocol=5, buffer_callback=stays_inside), large


def unpack(cargo: Cargo) -> list[Any]:
    body, large = cargo
    messages: list[Any] = pickle.loads(body, buffers=[bytearray(buffer) for buffer in large])
    return messages
