"""The card without files, the files once, and the renderer."""

from pathlib import Path

import numpy as np
import pytest
from miles_core import BuildContext, Message

from miles_plugin_xyz.model import XyzModel
from miles_plugin_xyz.options import XyzOptions

QUESTION: Message = {"role": "user", "content": "1+2="}
ANSWER: Message = {"role": "assistant", "content": "3"}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> XyzModel:
    monkeypatch.setenv("MILES_CACHE", str(tmp_path / "cache"))
    options = XyzOptions(context=64)
    return XyzModel(options, BuildContext(seed=1, name="model"))


def test_the_card_needs_no_files(model: XyzModel, tmp_path: Path) -> None:
    assert (model.describe().context, model.describe().vocabulary) == (64, 128)
    assert list(tmp_path.iterdir()) == []


def test_the_files_are_made_once(model: XyzModel) -> None:
    files = model.materialise()
    weights = files.path / "logits.npy"
    assert np.load(weights).size == files.card.parameters
    made_at = weights.stat().st_mtime_ns
    assert model.materialise().path == files.path
    assert weights.stat().st_mtime_ns == made_at


def test_what_was_rendered_is_a_prefix_of_what_follows(model: XyzModel) -> None:
    renderer = model.renderer()
    asked = renderer.render([QUESTION])
    turn = np.concatenate([asked, renderer.encode("3"), renderer.stop_tokens]).astype(np.int32)
    assert renderer.parse(turn[len(asked) :]).message == ANSWER
    whole = np.concatenate([turn, renderer.bridge(turn, [QUESTION])])
    assert whole.tolist() == renderer.render([QUESTION, ANSWER, QUESTION]).tolist()
