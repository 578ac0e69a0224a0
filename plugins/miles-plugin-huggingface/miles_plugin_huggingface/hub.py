"""Models on the Hugging Face hub. The library is imported only when a hub id is used."""

from __future__ import annotations

import re
from pathlib import Path

from miles_core import RequestError

_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_PATTERNS = ["*.json", "*.safetensors", "*.jinja", "*.txt", "LICENSE*"]


def is_hub_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def snapshot(model: str, revision: str | None) -> Path:
    """The model's folder in the hub's cache, downloaded when it is not complete there."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=_PATTERNS))
    except Exception as error:  # the library raises its own, the HTTP client's and the operating system's errors
        raise _unavailable(model, revision, error) from error


def configuration_folder(model: str, revision: str | None) -> Path:
    """A folder with config.json and generation_config.json (a few kilobytes), all that a card needs beside sizes."""
    from huggingface_hub import snapshot_download

    try:
        found = snapshot_download(model, revision=revision, allow_patterns=["config.json", "generation_config.json"])
    except Exception as error:  # as in `snapshot`
        raise _unavailable(model, revision, error) from error
    return Path(found)


def parameter_count(model: str, revision: str | None) -> int:
    """From the headers of the safetensors files, by range requests: no weights are downloaded."""
    from huggingface_hub import get_safetensors_metadata

    try:
        return int(sum(get_safetensors_metadata(model, revision=revision).parameter_count.values()))
    except Exception as error:  # as in `snapshot`
        raise _unavailable(model, revision, error) from error


def _unavailable(model: str, revision: str | None, error: Exception) -> RequestError:
    said = str(error).strip().splitlines()
    return RequestError(
        f"there is no folder {model!r} here, and the hub did not give it: "
        f"{type(error).__name__}: {said[0] if said else 'no reason given'}",
        where=f"model.path: {model}" + (f" @ {revision}" if revision else ""),
        mend="check the name and the network, or download the model elsewhere and give its folder as `path`",
    )
