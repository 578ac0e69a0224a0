"""The secret of our own clusters: whoever reaches their ports without it is refused.

One for each process that starts clusters, in a file that only its user can read. Ray finds it by environment
variables, and keeps what it found, so it is told when they change.
"""

from __future__ import annotations

import functools
import os
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path

MODE, PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"
_USERS = (MODE, PATH, "RAY_AUTH_TOKEN")

_FILE = "file://"

_set_here = False


def of_this_process() -> Mapping[str, str]:
    """What the processes of a cluster of our own are given. Nothing when the person has settings of their own."""
    if not _set_here and any(name in os.environ for name in _USERS):
        return {}
    return {MODE: "token", PATH: str(Path(_folder().name) / "token")}


def in_use() -> str:
    """Where other processes of this user find the token that this one uses, as a URL; "" for none of our own."""
    return _FILE + os.environ[PATH] if _set_here else ""


def by_url(url: str) -> Mapping[str, str]:
    """The environment of a process that uses the token at `in_use()` of another."""
    return {MODE: "token", PATH: url.removeprefix(_FILE)} if url else {}


def use(environment: Mapping[str, str]) -> None:
    """Speak with this process's next cluster by this token; an empty environment takes back what was set before."""
    global _set_here
    if not environment and not _set_here:
        return
    for name in (MODE, PATH):
        os.environ.pop(name, None)
    os.environ.update(environment)
    _set_here = bool(environment)
    _tell_ray()


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Removed when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="miles-ray-token-")
    file = Path(folder.name) / "token"
    file.touch(mode=0o600)
    file.write_text(secrets.token_hex(32))
    return folder


def _tell_ray() -> None:
    """As ray.init does for a cluster that it starts itself; older Rays have no tokens."""
    from ray import _raylet

    _raylet.Config.initialize("")  # type: ignore[attr-defined]
    loader = getattr(_raylet, "AuthenticationTokenLoader", None)
    if loader is not None:
        loader.instance().reset_cache()
