"""Images of a family: the checkpoint's own processor, and which of the rendered ids stand for which image.

The library expands an image to as many placeholders as the processor says, in the order of the parts; nothing else
becomes that id, since texts are kept from spelling special tokens. So the spans are read off the ids.
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from miles_core import ImageFile, ImageInput, ImageSpan, Message, Rendered, RequestError

FILE = "preprocessor_config.json"
PRACTICE = {
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "size": {"shortest_edge": 1024, "longest_edge": 65536},
}
"""What a practice model has for `preprocessor_config.json`: Qwen3-VL's, for small images."""

KEPT = 32
"""Images whose pixel inputs are kept: those of a group are the same."""


class FamilyImages:
    """Thread-safe. `folder` has the checkpoint's preprocessor_config.json; where it has none, `practice` serves."""

    def __init__(self, folder: Path, placeholder: int, practice: Mapping[str, Any] | None = None) -> None:
        self.placeholder = placeholder
        self._folder = folder
        self._practice = practice
        self._made: Any = None
        self._alone = threading.RLock()
        self._kept: OrderedDict[bytes, ImageInput] = OrderedDict()
        self._by_stand_in: OrderedDict[bytes, ImageInput] = OrderedDict()

    @property
    def stands_in(self) -> bool:
        """Whether the processor is not the checkpoint's own."""
        return not (self._folder / FILE).is_file()

    def rendered(self, ids: npt.NDArray[np.int32], messages: Sequence[Message]) -> Rendered:
        """The ids that the library made of messages, with the image of each placeholder. Raises ValueError where the
        two do not fit."""
        places = np.flatnonzero(ids == self.placeholder)
        spans = []
        used = 0
        for part in image_parts(messages):
            image = self.input(ImageFile.of_part(part))
            own = places[used : used + self.count(image)]
            used += len(own)
            if len(own) != self.count(image) or own[-1] - own[0] + 1 != len(own):
                raise ValueError("an image's placeholders are not where its processor wants them")
            spans.append(ImageSpan(int(own[0]), int(own[-1]) + 1, image))
        if used != len(places):
            raise ValueError(f"{len(places) - used} placeholders of images have no image")
        return Rendered(ids, tuple(spans))

    def input(self, file: ImageFile) -> ImageInput:
        """What the processor makes of a file. Raises ValueError when it cannot be decoded."""
        with self._alone:
            found = self._kept.get(file.data)
            if found is None:
                found = self._kept[file.data] = self._process(file)
                self._by_stand_in[_name(found)] = found
                while len(self._kept) > KEPT:
                    _, gone = self._kept.popitem(last=False)
                    self._by_stand_in.pop(_name(gone), None)
            self._kept.move_to_end(file.data)
            return found

    def count(self, image: ImageInput) -> int:
        """Placeholders of an image: patches, merged."""
        return int(image.arrays["image_grid_thw"].prod()) // self.merge_size**2

    # What the library asks of a processor

    @property
    def image_processor(self) -> FamilyImages:
        return self

    @property
    def merge_size(self) -> int:
        return int(self._processor().merge_size)

    def stand_in(self, part: Mapping[str, Any]) -> dict[str, Any]:
        """The part for the library: in place of the image a small one that names it, so that nothing is decoded or
        processed twice."""
        from PIL import Image

        name = _name(self.input(ImageFile.of_part(part)))
        return {"type": "image", "image": Image.frombytes("RGB", (len(name) // 3, 1), name)}

    def __call__(self, *, images: Sequence[Any], return_tensors: str) -> Mapping[str, Any]:
        (image,) = images
        with self._alone:
            return self._by_stand_in[image.tobytes()].arrays

    def _process(self, file: ImageFile) -> ImageInput:
        try:
            from PIL import Image, UnidentifiedImageError
        except ImportError as error:
            raise ValueError("images need the package pillow: pip install 'miles-plugin-families[images]'") from error
        try:
            with Image.open(io.BytesIO(file.data)) as opened:
                if opened.size != (file.width, file.height):
                    raise ValueError(f"the image is {opened.size} and its header says {(file.width, file.height)}")
                pixels = opened.convert("RGB")
        except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError) as error:
            raise ValueError(f"the {file.media_type} cannot be decoded: {error}") from error
        try:
            made = self._processor()(images=[pixels], return_tensors="np")
        except ValueError as error:  # such as an aspect ratio that the family does not take
            raise ValueError(f"the family's processor refuses the image: {error}") from error
        arrays = {name: _frozen(made[name]) for name in ("pixel_values", "image_grid_thw")}
        return ImageInput.of(file.data, file.media_type, file.width, file.height, arrays)

    def _processor(self) -> Any:
        with self._alone:
            if self._made is None:
                self._made = _load(self._folder, self._practice)
            return self._made


def image_parts(messages: Sequence[Message]) -> list[Mapping[str, Any]]:
    """The parts of messages that are images, in order."""
    contents = (message.get("content") for message in messages)
    parts = (part for content in contents if isinstance(content, list | tuple) for part in content)
    return [part for part in parts if part.get("type") == "image_url"]


def _load(folder: Path, practice: Mapping[str, Any] | None) -> Any:
    """Imported when a conversation has an image: transformers takes seconds. Its code alone is run, none of a
    checkpoint's."""
    try:
        from transformers.models.auto.image_processing_auto import AutoImageProcessor
        from transformers.utils import logging
    except ImportError as error:
        raise ValueError("images need transformers: pip install 'miles-plugin-families[images]'") from error
    logging.set_verbosity_error()
    if not (folder / FILE).is_file():
        if practice is None:
            raise ValueError(f"the checkpoint has no {FILE}, so nothing says how its images are processed")
        from transformers import Qwen2VLImageProcessorPil

        return Qwen2VLImageProcessorPil(**practice)
    try:
        return AutoImageProcessor.from_pretrained(folder, backend="pil")
    except Exception as error:
        raise RequestError(
            f"the checkpoint's image processor cannot be loaded: {error}", where=str(folder / FILE)
        ) from error


def _name(image: ImageInput) -> bytes:
    """Bytes for a row of pixels that say which image it is."""
    digest = bytes.fromhex(image.digest)
    return digest + bytes(-len(digest) % 3)


def _frozen(array: Any) -> npt.NDArray[Any]:
    copy = np.array(array)
    copy.setflags(write=False)
    return copy
