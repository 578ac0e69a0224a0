"""Is a component's distribution installed here in the version that its sender has?

Asked in every worker, so no folder is listed: the sender names its metadata folder, whose name holds the version, and
the same name is looked for beside the code that is about to be imported. Only when it is not there, which is trouble or
an unusual installation, the standard library is asked.
"""

from __future__ import annotations

import importlib.util
import re
import socket
import sys
from pathlib import Path

import miles_core
from miles_core.errors import PluginError

_VERSION = re.compile(rb"^Version:[ \t]*(\S+)", re.MULTILINE)
_EDITABLE = re.compile(rb'"editable"\s*:\s*true')
_CONFIRMED: set[tuple[str, str, str]] = set()


def check_version(distribution: str, version: str, location: str, module: str, who: str) -> None:
    """Raise PluginError, naming this host and `who` (the worker), when `module` of the distribution would be imported
    in another version than `version`. `location` is the sender's metadata folder, "" when it is not known."""
    asked = (distribution, version, module.partition(".")[0])
    if asked in _CONFIRMED:
        return
    if distribution == "miles-core":
        found: str | None = miles_core.__version__
    elif _is_here(*asked, Path(location)):
        found = version
    else:
        found = _by_standard_library(distribution)
    if found != version:
        here = f"{found} is installed here" if found else "it is not installed here"
        raise PluginError(
            f"{who} on host {socket.gethostname()} was sent a component of {distribution} {version}, but {here}",
            where=sys.prefix,
            mend=f"have the same version everywhere: pip install {distribution}=={version} on that host",
        )
    _CONFIRMED.add(asked)


def _is_here(distribution: str, version: str, package: str, location: Path) -> bool:
    """Whether metadata of exactly this version lies where the package's code comes from. An editable package's code
    lies elsewhere, so its metadata counts wherever it is on the path."""
    folder = location.name or f"{distribution.replace('-', '_')}-{version}.dist-info"
    root = _root_of(package)
    if root is not None and _version_in(root, folder) == version:
        return True
    places = dict.fromkeys([location.parent, *(Path(entry) for entry in sys.path)])
    return any(_is_editable(place, folder) and _version_in(place, folder) == version for place in places)


def _root_of(package: str) -> Path | None:
    """The folder or archive that the package would be imported from; None when it would not be."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).parent
    return Path(spec.origin).parent if spec.origin else None


def _version_in(root: Path, folder: str) -> str:
    raw = _read(root, folder, "PKG-INFO" if folder.endswith(".egg-info") else "METADATA")
    found = _VERSION.search(raw)
    return found.group(1).decode("utf-8", "replace") if found else ""


def _is_editable(root: Path, folder: str) -> bool:
    return folder.endswith(".egg-info") or _EDITABLE.search(_read(root, folder, "direct_url.json")) is not None


def _read(root: Path, folder: str, file: str) -> bytes:
    """A metadata file; empty when it is not there."""
    try:
        if root.is_file():
            import zipfile

            with zipfile.ZipFile(root) as archive:
                return archive.read(f"{folder}/{file}")
        return (root / folder / file).read_bytes()
    except (KeyError, ValueError, OSError):
        return b""


def _by_standard_library(distribution: str) -> str | None:
    """The version that `importlib.metadata` finds; None when it finds none. It lists every folder on the path."""
    import importlib.metadata

    try:
        return importlib.metadata.version(distribution)
    except (importlib.metadata.PackageNotFoundError, ValueError, OSError, KeyError, TypeError):
        return None
