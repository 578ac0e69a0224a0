"""All kinds of plugins, made once for all tests: generated, built and installed like a stranger's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from miles_core.contracts.component import KINDS
from miles_core.host.scan import Index
from miles_core.scaffold.make import make
from miles_core.testing import SitePackages

ROOT = Path(__file__).parents[2]
BY_PIP = ("agent", "generator", "reward")


def name_of(kind: str) -> str:
    """Two words, so that every spelling of a name differs from the others."""
    return f"blue-{kind}"


@dataclass(frozen=True)
class Workshop:
    """`folder` holds `miles-plugin-blue-<kind>` for each kind, `site` what pip made of them."""

    folder: Path
    site: Path

    def plugin(self, kind: str) -> Path:
        return self.folder / f"miles-plugin-{name_of(kind)}"

    def package(self, kind: str) -> Path:
        return self.plugin(kind) / f"miles_plugin_blue_{kind}"

    def run(self, *arguments: str, cwd: Path | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A Python process that has all of them installed, in the workshop's folder."""
        path = os.pathsep.join([str(self.site), *sys.path])
        cache = str(self.folder / "cache")
        environment = {**os.environ, "PYTHONPATH": path, "MILES_CACHE": cache, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, *arguments], cwd=cwd or self.folder, capture_output=True, text=True, env=environment
        )
        assert not check or done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Every kind as a source folder, not installed."""
    folder = tmp_path_factory.mktemp("workshop")
    for kind in KINDS:
        make(name_of(kind), kind, folder / f"miles-plugin-{name_of(kind)}", Index(()))
    return Workshop(folder, folder / "site")


@pytest.fixture(scope="session")
def installed(generated: Workshop) -> Workshop:
    """All of them: some by pip, built as wheels from their own pyproject.toml, offline; the others, since a build takes
    a second, as a copy of the package with the same metadata."""
    folders = [str(generated.plugin(kind)) for kind in BY_PIP]
    options = ["--quiet", "--no-build-isolation", "--no-deps", "--no-index", "--target", str(generated.site)]
    generated.run("-m", "pip", "install", *options, *folders)
    site = SitePackages(generated.site)
    for kind in KINDS:
        if kind in BY_PIP:
            continue
        project = tomllib.loads((generated.plugin(kind) / "pyproject.toml").read_text())["project"]
        groups = project["entry-points"]
        site.distribution(
            project["name"],
            project["version"],
            plugins=groups["miles.plugins"],
            provides=list(groups["miles.provides"]),
            requires=project["dependencies"],
            hook_api=next(iter(groups["miles.hook_api"])),
        )
        shutil.copytree(generated.package(kind), site.folder / generated.package(kind).name)
    return generated
