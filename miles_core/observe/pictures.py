"""Images in the report: each in place of its placeholders, small files as they are, others as their size."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path

from miles_core.errors import RequestError
from miles_core.observe.images import ImageFolder
from miles_core.types.image import ImageSpan

_LARGEST = 100_000
"""Bytes of a file that is put into a page."""

_SIDE = 160
"""Pixels of a side on the page, at most."""


class Pictures:
    """Of one trajectories folder; without one, sizes alone are shown."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if folder is None else ImageFolder(folder)

    def html(self, span: ImageSpan) -> str:
        """What stands for the placeholders of an image."""
        image = span.image
        words = f"image {image.width}x{image.height}"
        facts = (image.media_type, f"{span.stop - span.start} placeholders from {span.start}", f"digest {image.digest}")
        tip = escape("\n".join((words, *facts, "not sampled: masked in the loss")))
        source = self._source(image.digest)
        picture = f'<img src="{source}" alt="" style="max-width:{_SIDE}px;max-height:{_SIDE}px">' if source else ""
        return f'<span class="masked" title="{tip}">{picture}[{words}]</span>'

    def _source(self, digest: str) -> str:
        """A data: URL; "" where the file is large, or not there."""
        if self._folder is None:
            return ""
        try:
            image = self._folder.read(digest)
        except RequestError:  # `miles audit` tells of it; a report is shown all the same
            return ""
        if len(image.file) > _LARGEST:
            return ""
        return f"data:{image.media_type};base64,{base64.b64encode(image.file).decode('ascii')}"
