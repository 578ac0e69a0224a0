"""What a recipe may say of the engine `torch`. Imports no torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, PositiveInt

from miles_core import Options


class TorchEngineOptions(Options):
    """Options of the engine `torch`."""

    device: str = Field(default="cpu", description="torch device that holds weights and KV memory, e.g. cpu or cuda:0")
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        default="float32", description="dtype of weights and computing; on a CPU only float32 is quick"
    )
    threads: PositiveInt | None = Field(
        default=None,
        description="threads that compute; default: OMP_NUM_THREADS, or the processors this process may use",
    )
    max_running: PositiveInt = Field(default=64, description="requests that are decoded at the same time")
    kv_tokens: PositiveInt = Field(
        default=32768,
        description="bound of KV memory, in tokens: prompts, outputs and prefix cache together; requests wait for room",
    )
    prefill_tokens: PositiveInt = Field(
        default=512, description="prompt tokens computed at most between two decode steps"
    )
    prefix_cache: bool = Field(
        default=True, description="keep the KV of prompts and finished turns for later requests that begin alike"
    )
    context: PositiveInt | None = Field(
        default=None, description="longest sequence, prompt and output together; default: the model's context"
    )

    def card(self) -> Mapping[str, str]:
        return {
            "sampling": "noise is a function of (seed, purpose, task, draw, index, turn, position); "
            "log-probs are taken before top-p and top-k",
            "in-flight requests at a weight update": "retract, in-place and abort are supported",
        }

    def thread_count(self) -> int:
        """`threads`, or what OMP_NUM_THREADS says, or how many processors this process may use."""
        if self.threads is not None:
            return self.threads
        if (told := os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]).isdigit():
            return max(1, int(told))
        try:
            return len(os.sched_getaffinity(0))
        except AttributeError:  # not on every platform
            return os.cpu_count() or 1
