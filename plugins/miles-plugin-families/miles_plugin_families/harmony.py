"""gpt-oss's vocabulary, o200k_base, as the library openai-harmony reads it.

The library would download it. It takes the folder that $TIKTOKEN_ENCODINGS_BASE names instead, and checks the file's
digest. The same tokens stand in a checkpoint's tokenizer.json, from which the file is written; without a checkpoint it
comes out of the wheel of litellm, which `python -m miles_plugin_families.fetch` gets.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from miles_core import RequestError, cache_root, make_once

VARIABLE = "TIKTOKEN_ENCODINGS_BASE"
NAME = "o200k_base.tiktoken"
ORDINARY = 199_998
_alone = threading.Lock()


def vocabulary(make: Callable[[Path], None] | None) -> Path:
    """The folder in the cache that has the file, made by `make(empty folder)` when it is not there yet.

    Raises RequestError when it is not there and nothing can make it."""
    folder = cache_root() / "vocabularies" / "o200k_base-v1"
    if make is None and not folder.is_dir():
        raise RequestError(
            "gpt-oss's vocabulary is not here",
            where=str(folder),
            mend="python -m miles_plugin_families.fetch, or give a checkpoint: `path: DIR`",
        )
    return make_once(folder, make or _nothing, what="the vocabulary o200k_base")


@contextmanager
def read_from(folder: Path) -> Iterator[None]:
    """While the library loads, it finds the vocabulary in this folder, unless somebody set another."""
    with _alone:
        if os.environ.get(VARIABLE):
            yield
            return
        os.environ[VARIABLE] = str(folder)
        try:
            yield
        finally:
            del os.environ[VARIABLE]


def _nothing(_empty: Path) -> None:
    """The folder is there."""
