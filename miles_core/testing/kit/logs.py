"""What is logged while a check is tried: shown when the check fails, and no noise when it passes."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator


class Kept(logging.Handler):
    """Keeps the warnings and errors of one check."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def show(self) -> None:
        """Print what was logged on standard error."""
        for line in self.lines:
            print(line, file=sys.stderr)


@contextlib.contextmanager
def kept_back() -> Iterator[Kept]:
    """Keep what is logged in the block, where nobody else takes it: else Python prints it on standard error."""
    kept, root = Kept(), logging.getLogger()
    alone = not root.handlers
    if alone:
        root.addHandler(kept)
    try:
        yield kept
    finally:
        if alone:
            root.removeHandler(kept)
