from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "trainer"))

from seeing import make_model


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    torch.set_num_threads(1)
    return make_model(tmp_path_factory.mktemp("seeing"))
