"""One thread: the machine is shared, and results are compared bitwise. `trainer_cases` is importable from the tests."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from trainer_cases import save_tiny

torch.set_num_threads(1)


@pytest.fixture(scope="session", params=["llama", "qwen3"])
def tiny(request, tmp_path_factory):
    """ModelFiles of a tiny model with random weights."""
    return save_tiny(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    return save_tiny("llama", tmp_path_factory.mktemp("llama-alone"))
