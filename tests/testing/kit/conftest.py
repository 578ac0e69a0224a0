"""Broken components must fail quickly: what does not end is given up sooner than on a person's machine."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `trying`, beside these tests


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    from miles_core.testing.kit import living
    from miles_core.testing.kit.kinds import agent, middleware

    for module in (living, agent, middleware):
        monkeypatch.setattr(module, "SOON", 0.3)
