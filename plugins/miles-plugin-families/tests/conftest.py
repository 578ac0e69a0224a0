"""The modules that the tests here share are imported by their plain names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from family_renderers import FAMILIES, FamilyRenderer, renderer_of


@pytest.fixture(params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def renderer(family: str) -> FamilyRenderer:
    return renderer_of(family)
