"""A made-up site-packages in front of the import path, forgotten after each test."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from miles_core.testing.installing import SitePackages


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SitePackages]:
    packages = SitePackages(tmp_path / "site")
    monkeypatch.syspath_prepend(str(packages.folder))
    yield packages
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
