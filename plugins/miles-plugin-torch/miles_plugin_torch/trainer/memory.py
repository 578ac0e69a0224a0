"""Memory that was freed goes back to the machine.

After a step the C library keeps what activations and gradients took, in case it is asked for again. On a machine where
engine and trainer take turns that is memory which the other one needs, and a weight update comes right after a step.
"""

from __future__ import annotations

import ctypes
import sys


def return_freed_memory() -> None:
    """Give the C library's free memory back where it can (glibc); elsewhere nothing happens."""
    if not sys.platform.startswith("linux"):
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
