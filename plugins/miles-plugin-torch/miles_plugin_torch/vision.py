"""Models that see: images as rows of a vision tower among the embeddings of tokens, for Qwen3-VL.

A row of tokens with images becomes a row of *keys*: each placeholder of an image is replaced by a negative number that
says which image it is and which of its rows of features stands there. What compares tokens (a prefix cache, rows that
share a prompt) compares keys and so tells two images apart that have the same placeholders; and a key alone says what
to embed, however a row is cut into chunks or packed.

Positions have three axes (Qwen2-VL, arXiv 2409.12191, section 2.1): a text token has its number on all three; an image
of h x w features has one time, its rows and its columns, and takes max(h, w) numbers. What follows counts on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from miles_core import ImageInput, ImageSpan, RequestError

if TYPE_CHECKING:  # an engine that needs no transformers does not import it
    from transformers import PreTrainedModel

ARCHITECTURES = frozenset({"Qwen3VLForConditionalGeneration"})
"""Classes of transformers that `Vision` was tried with."""

KeyArray = npt.NDArray[np.int32]
PositionArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Features:
    """What the vision tower makes of one image: `rows` [n, hidden] take the place of embeddings, and each of `deeper`
    [n, hidden] is added after one of the first layers (DeepStack, arXiv 2406.04334)."""

    rows: torch.Tensor
    deeper: tuple[torch.Tensor, ...]


class Vision:
    """One model's images. `cached`: features are kept until the weights change (`changed`), for an engine."""

    def __init__(self, model: PreTrainedModel, *, cached: bool) -> None:
        self._model: Any = model.base_model
        self._merge = int(model.config.vision_config.spatial_merge_size)
        self._cached = cached
        self._first: dict[str, int] = {}  # digest -> number of its first row
        self._starts: list[int] = []
        self._grids: list[tuple[int, int]] = []  # rows and columns of features, in the order of `_starts`
        self._held: dict[int, ImageInput] = {}
        self._uses: Counter[int] = Counter()
        self._features: dict[int, Features] = {}
        self._end = 0

    # Keys

    def check(self, images: Iterable[ImageSpan]) -> None:
        """Raises RequestError for an image that is no input of this model, or does not fit its placeholders."""
        for span in images:
            rows, columns = self._grid(span.image)
            if rows * columns != span.stop - span.start:
                raise RequestError(
                    f"an image of {rows}x{columns} features stands at {span.stop - span.start} placeholders",
                    mend="render it with the checkpoint's own processor",
                )

    def take(self, tokens: KeyArray, images: Iterable[ImageSpan]) -> KeyArray:
        """The keys of a row whose images are needed until `give`, and were checked."""
        keys = tokens.copy()
        for span in images:
            start = self._number(span.image)
            place = bisect_right(self._starts, start) - 1
            self._held[place] = span.image
            self._uses[place] += 1
            keys[span.start : span.stop] = -1 - np.arange(start, start + span.stop - span.start, dtype=np.int32)
        return keys

    def give(self, images: Iterable[ImageSpan]) -> None:
        """A row of `take` is no longer needed."""
        for span in images:
            place = bisect_right(self._starts, self._first[span.image.digest]) - 1
            self._uses[place] -= 1
            if not self._uses[place]:
                del self._uses[place]
                self._held.pop(place, None)
                self._features.pop(place, None)

    def positions(self, keys: KeyArray) -> PositionArray:
        """int64 [3, n] of a row from its beginning; it may end inside an image."""
        out = np.empty((3, len(keys)), np.int64)
        now = at = 0
        while at < len(keys):
            if keys[at] >= 0:
                ahead = np.flatnonzero(keys[at:] < 0)
                stop = at + int(ahead[0]) if len(ahead) else len(keys)
                out[:, at:stop] = np.arange(now, now + stop - at)
                now += stop - at
            else:
                rows, columns = self._grids[self._place(-1 - int(keys[at]))]
                stop = min(at + rows * columns, len(keys))
                number = np.arange(stop - at)
                out[:, at:stop] = now + np.stack([0 * number, number // columns, number % columns])
                now += max(rows, columns)
            at = stop
        return out

    def forget(self) -> None:
        """No row of `take` is needed any more."""
        self._held.clear()
        self._uses.clear()
        self._features.clear()

    def changed(self) -> None:
        """The weights are others now."""
        self._features.clear()

    # The model

    def hidden(self, keys: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """The last hidden states [T, hidden] of keys int64 [T] at positions int64 [3, T]."""
        seen = keys < 0
        embeddings = self._model.get_input_embeddings()(keys.clamp(min=0))
        more: dict[str, Any] = {}
        if bool(seen.any()):
            found = self._rows(-1 - keys[seen])
            embeddings = embeddings.masked_scatter(seen[:, None], found.rows.to(embeddings.dtype))
            more = {"visual_pos_masks": seen[None], "deepstack_visual_embeds": list(found.deeper)}
        states: torch.Tensor = self._model.language_model(
            inputs_embeds=embeddings[None], position_ids=positions[:, None], use_cache=False, **more
        ).last_hidden_state
        return states[0]

    def _rows(self, numbers: torch.Tensor) -> Features:
        """The features of rows by their numbers, in that order."""
        wanted = numbers.tolist()
        tables: dict[int, Features] = {}
        offsets: dict[int, int] = {}
        index = []
        for number in wanted:
            place = self._place(number)
            if place not in tables:
                offsets[place] = sum(len(table.rows) for table in tables.values())
                tables[place] = self._of(place)
            index.append(offsets[place] + number - self._starts[place])
        picked = torch.tensor(index, device=numbers.device)
        parts = list(tables.values())
        deeper = (torch.cat([part.deeper[level] for part in parts])[picked] for level in range(len(parts[0].deeper)))
        return Features(torch.cat([part.rows for part in parts])[picked], tuple(deeper))

    def _of(self, place: int) -> Features:
        """The features of one image, computed alone: the same whatever it is batched with."""
        found = self._features.get(place)
        if found is not None:
            return found
        arrays, device = self._held[place].arrays, self._model.device
        pixels = torch.from_numpy(np.array(arrays["pixel_values"])).to(device)
        grid = torch.from_numpy(np.array(arrays["image_grid_thw"], np.int64)).to(device)
        made = self._model.get_image_features(pixels, grid, return_dict=True)
        deeper = (torch.cat(list(each)) for each in made.deepstack_features)
        found = Features(torch.cat(list(made.pooler_output)), tuple(deeper))
        if self._cached:
            self._features[place] = found
        return found

    def _number(self, image: ImageInput) -> int:
        """The number of an image's first row; the same each time."""
        start = self._first.get(image.digest)
        if start is None:
            grid = self._grid(image)
            start = self._first[image.digest] = self._end
            self._starts.append(start)
            self._grids.append(grid)
            self._end += grid[0] * grid[1]
        return start

    def _grid(self, image: ImageInput) -> tuple[int, int]:
        grid, pixels = image.arrays.get("image_grid_thw"), image.arrays.get("pixel_values")
        if grid is None or grid.shape != (1, 3) or pixels is None or len(pixels) != int(grid.prod()):
            raise RequestError(
                "an image has no `image_grid_thw` [1, 3] with as many rows of `pixel_values`: no input of this model",
                mend="render it with the checkpoint's own processor",
            )
        time, rows, columns = (int(each) for each in grid[0])
        return time * rows // self._merge, columns // self._merge

    def _place(self, number: int) -> int:
        return bisect_right(self._starts, number) - 1
