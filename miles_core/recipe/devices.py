"""Whether this machine shows a GPU, told without any library: for a warning in a plan."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_NODES = ("nvidia[0-9]*", "kfd", "dxg", "accel/accel*")
"""Device nodes of NVIDIA, AMD, Windows' Linux and other accelerators."""


def shows_gpu(environ: Mapping[str, str] = os.environ, devices: Path = Path("/dev")) -> bool:
    """False only where it is certain: the machine is a Linux without a GPU's device node, or all of them are hidden."""
    if environ.get("CUDA_VISIBLE_DEVICES", "-") in ("", "-1"):
        return False
    return sys.platform != "linux" or any(next(devices.glob(node), None) for node in _NODES)
