"""gpt-oss's vocabulary for the library openai-harmony, which would download it otherwise.

The library reads o200k_base from the folder that $TIKTOKEN_ENCODINGS_BASE names, and checks its digest. The same tokens
stand in the checkpoint's tokenizer.json, so the file is written from there, once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from miles_core import cache_root, make_once
from miles_plugin_families.packaged import write_ranks

VARIABLE = "TIKTOKEN_ENCODINGS_BASE"
ORDINARY = 199_998
_alone = threading.Lock()


@contextmanager
def vocabulary_of(folder: Path) -> Iterator[None]:
    """While the library loads: the variable names a folder with the vocabulary, unless somebody set it."""
    if os.environ.get(VARIABLE):
        yield
        return

    def make(empty: Path) -> None:
        write_ranks(folder / "tokenizer.json", ORDINARY, empty / "o200k_base.tiktoken")

    made = make_once(cache_root() / "vocabularies" / "o200k_base-v1", make, what="the vocabulary o200k_base")
    with _alone:
        os.environ[VARIABLE] = str(made)
        try:
            yield
        finally:
            del os.environ[VARIABLE]
