"""Trajectories as JSON data: those that a group keeps while others of it are made again survive a checkpoint so."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from miles_core.types.trajectory import Disposition, Group, Trajectory

_STEM = "kept"


def to_data(group: Group) -> dict[str, str]:
    """The files of a trajectories folder (docs/formats.md) that holds the group, in base64 by their names."""
    from miles_core.observe.trajectories import write_groups  # pyarrow, which few rollouts need

    dispositions = dict.fromkeys((t.id for t in group.trajectories), Disposition.BUFFERED)
    with TemporaryDirectory(prefix="miles-kept-") as name:
        folder = Path(name)
        write_groups(folder, _STEM, [(group, dispositions)], step=None)
        files = (path for path in sorted(folder.rglob("*")) if path.is_file())
        return {str(path.relative_to(folder)): base64.b64encode(path.read_bytes()).decode() for path in files}


def from_data(files: Mapping[str, str]) -> tuple[Trajectory, ...]:
    """The trajectories of that group. Raises ValueError or RequestError when the files are damaged."""
    from miles_core.observe.trajectories import SUFFIX, read_file

    with TemporaryDirectory(prefix="miles-kept-") as name:
        folder = Path(name)
        for relative, content in files.items():
            path = folder / relative
            if not path.resolve().is_relative_to(folder.resolve()):
                raise ValueError(f"{relative!r} is no file of a trajectories folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(content))
        ((group, _),) = read_file(folder / f"{_STEM}{SUFFIX}")
    return group.trajectories
