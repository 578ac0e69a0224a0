"""Nothing here reaches the network: what needs it fails at once, and a check can say so instead of hanging."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

SETTINGS = {"PIP_NO_INDEX": "1", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
"""What keeps the usual tools, and the processes that they start, at home."""


@contextmanager
def offline() -> Iterator[None]:
    """Refuse connections and names for as long as it lasts. Sockets of this machine's own (AF_UNIX) work on."""
    before = {name: os.environ.get(name) for name in SETTINGS}
    connect, resolve = socket.socket.connect, socket.getaddrinfo

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise OSError("the conformance kit lets nothing reach the network")

    def connect_locally(self: socket.socket, address: Any) -> None:
        if self.family is not getattr(socket, "AF_UNIX", None):
            refuse()
        connect(self, address)

    os.environ.update(SETTINGS)
    socket.socket.connect = connect_locally  # type: ignore[method-assign, assignment]
    socket.getaddrinfo = refuse
    try:
        yield
    finally:
        socket.socket.connect = connect  # type: ignore[method-assign]
        socket.getaddrinfo = resolve
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
