"""Groups as rows of a Parquet table, and back: the columns of a trajectories file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Sequence as Several
from typing import Any

import numpy as np
import pyarrow as pa

from miles_core.errors import RunError
from miles_core.observe.images import ImageFolder, facts_of, row_of, task_data, whole_task
from miles_core.types.image import ImageSpan
from miles_core.types.sequence import NO_VERSION, Sequence, Span
from miles_core.types.trajectory import Disposition, Group, Score, Status, Trajectory

Row = dict[str, Any]

_SPAN = pa.struct(
    [
        ("start", pa.int32()),
        ("stop", pa.int32()),
        ("version", pa.int32()),
        ("engine", pa.string()),
        ("request", pa.string()),
        ("turn", pa.int32()),
        ("temperature", pa.float64()),
    ]
)
_ROUTING = pa.struct([("shape", pa.list_(pa.int32())), ("dtype", pa.string()), ("data", pa.binary())])
_IMAGE = pa.struct(
    [
        ("start", pa.int32()),
        ("stop", pa.int32()),
        ("digest", pa.string()),
        ("media_type", pa.string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
    ]
)
_SEQUENCE = pa.struct(
    [
        ("tokens", pa.list_(pa.int32())),
        ("sampled", pa.list_(pa.bool_())),
        ("logprobs", pa.list_(pa.float32())),
        ("versions", pa.list_(pa.int32())),
        ("spans", pa.list_(_SPAN)),
        ("routing", _ROUTING),
        ("images", pa.list_(_IMAGE)),
    ]
)
SCHEMA = pa.schema(
    [
        ("entry", pa.int64()),
        ("step", pa.int32()),
        ("group", pa.int64()),
        ("draw", pa.int64()),
        ("task", pa.string()),
        ("trajectory", pa.string()),
        ("index", pa.int32()),
        ("status", pa.string()),
        ("disposition", pa.string()),
        ("reward", pa.float64()),
        ("text", pa.string()),
        ("scores", pa.string()),
        ("metadata", pa.string()),
        ("sequences", pa.list_(_SEQUENCE)),
    ]
)


def rows_of(
    entry: int, group: Group, dispositions: Mapping[str, Disposition], step: int | None, files: dict[str, bytes]
) -> list[Row]:
    """One row for each trajectory; one with a null trajectory when the group has none. `entry` is the group's place in
    its file. The images' files that the task refers to are added to `files` by name."""
    shared: Row = {
        "entry": entry,
        "step": step,
        "group": group.number,
        "draw": group.draw,
        "task": _json(task_data(group.task, files), f"task {group.task.id!r}"),
    }
    if not group.trajectories:
        return [shared]
    return [{**shared, **_trajectory_row(one, dispositions)} for one in group.trajectories]


def group_from_rows(rows: Several[Row], images: ImageFolder | None) -> tuple[Group, dict[str, Disposition]]:
    """The inverse of `rows_of`. Columns that hold nothing essential may be missing. Without a folder, images have their
    facts and no content."""
    first = rows[0]
    task = whole_task(json.loads(first["task"]), images)
    taken = [row for row in rows if row["trajectory"] is not None]
    group = Group(task, first["group"], first["draw"], tuple(_trajectory(row, task.id, images) for row in taken))
    return group, {row["trajectory"]: Disposition(row["disposition"]) for row in taken}


def _trajectory_row(one: Trajectory, dispositions: Mapping[str, Disposition]) -> Row:
    if one.id not in dispositions:
        raise RunError(f"trajectory {one.id!r} has no disposition, and every one ends in exactly one")
    scores = {name: None if s is None else {"value": s.value, "detail": s.detail} for name, s in one.scores.items()}
    return {
        "trajectory": one.id,
        "index": one.index,
        "status": one.status.value,
        "disposition": dispositions[one.id].value,
        "reward": one.reward,
        "text": one.text,
        "scores": _json(scores, f"the scores of trajectory {one.id!r}"),
        "metadata": _json(one.metadata, f"the metadata of trajectory {one.id!r}"),
        "sequences": [_sequence_row(sequence) for sequence in one.sequences],
    }


def _trajectory(row: Row, task_id: str, images: ImageFolder | None) -> Trajectory:
    scores = json.loads(row.get("scores") or "{}")
    return Trajectory(
        id=row["trajectory"],
        task_id=task_id,
        index=row["index"],
        sequences=tuple(_sequence(one, images) for one in row["sequences"]),
        status=Status(row["status"]),
        text=row.get("text") or "",
        reward=row.get("reward"),
        scores={name: None if s is None else Score(s["value"], s["detail"]) for name, s in scores.items()},
        metadata=json.loads(row.get("metadata") or "{}"),
    )


def _sequence_row(sequence: Sequence) -> Row:
    routing = sequence.routing
    return {
        "tokens": sequence.tokens,
        "sampled": sequence.sampled,
        "logprobs": sequence.logprobs,
        "versions": sequence.versions,
        "spans": [{name: getattr(span, name) for name in Span.__dataclass_fields__} for span in sequence.spans],
        "routing": None
        if routing is None
        else {"shape": list(routing.shape), "dtype": str(routing.dtype), "data": routing.tobytes()},
        "images": [row_of(span) for span in sequence.images],
    }


def _sequence(row: Row, images: ImageFolder | None) -> Sequence:
    n = len(row["tokens"])
    logprobs, versions, routing = row.get("logprobs"), row.get("versions"), row.get("routing")
    return Sequence(
        tokens=np.array(row["tokens"], dtype=np.int32),
        sampled=np.array(row["sampled"], dtype=np.bool_),
        logprobs=None if logprobs is None else np.array(logprobs, dtype=np.float32),
        versions=np.array([NO_VERSION] * n if versions is None else versions, dtype=np.int32),
        spans=tuple(Span(**span) for span in row.get("spans") or ()),
        routing=None
        if routing is None
        else np.frombuffer(routing["data"], dtype=np.dtype(routing["dtype"])).reshape(routing["shape"]).copy(),
        images=tuple(_image(each, images) for each in row.get("images") or ()),
    )


def _image(row: Row, images: ImageFolder | None) -> ImageSpan:
    return ImageSpan(row["start"], row["stop"], facts_of(row) if images is None else images.read(row["digest"]))


def _json(value: Any, whose: str) -> str:
    """JSON text of data that a plugin made; numpy's numbers and arrays become plain ones."""
    try:
        return json.dumps(value, default=plain, ensure_ascii=True)
    except (TypeError, ValueError) as error:
        raise RunError(f"{whose} cannot be stored as JSON: {error}", mend="let the plugin give JSON data") from error


def plain(value: Any) -> Any:
    """What `json` cannot write, as what it can: numpy's numbers and arrays, and mappings."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} is a {type(value).__name__}")
