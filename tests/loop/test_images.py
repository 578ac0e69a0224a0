"""A run whose tasks show images: trained, kept once, audited; and refused before it begins where somebody is blind."""

from __future__ import annotations

import json

import pytest

from miles_core import RequestError
from miles_core.loop.audit import audit
from miles_core.observe.report import write_report
from miles_core.observe.trajectories import read_groups
from miles_core.testing import make_png, run_recipe

FILES = [make_png(6, 4, seed=n) for n in (1, 2)]


def tasks(folder) -> str:
    rows = []
    for number, data in enumerate(FILES):
        (folder / f"{number}.png").write_bytes(data)
        content = [{"type": "text", "text": "how many? "}, {"type": "image", "image": f"{number}.png"}]
        rows.append({"messages": [{"role": "user", "content": content}], "answer": str(number)})
    (folder / "seen.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder / "seen.jsonl")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("seen")
    run = run_recipe(place, model={"use": "toy", "images": True}, data={"use": "file", "path": tasks(place)})
    return run.folder


def test_every_trajectory_has_its_image_and_the_folder_each_once(folder):
    groups = [group for _, group, _ in read_groups(folder.trajectories)]
    assert len(groups) == 4
    for group in groups:
        (span,) = group.trajectories[0].sequences[0].images
        assert span.image.file == FILES[int(group.task.answer)] and span.image.intact
        assert span.stop - span.start == 4
        assert all(t.sequences[0].images[0].image.digest == span.image.digest for t in group.trajectories)
    assert sorted(path.suffix for path in (folder.trajectories / "images").iterdir()) == [
        ".npz",
        ".npz",
        ".png",
        ".png",
    ]


def test_the_audit_looks_at_each_image(folder):
    found = audit(folder)
    assert found.ok and found.images == 2
    image = sorted(folder.trajectories.glob("images/*.npz"))[0]
    kept = image.read_bytes()
    try:
        image.unlink()
        missing = audit(folder)
        assert not missing.ok and any("cannot be read" in each.what for each in missing.findings)
        image.write_bytes(sorted(folder.trajectories.glob("images/*.npz"))[0].read_bytes())
        assert any("digest" in each.what for each in audit(folder).findings)
    finally:
        image.write_bytes(kept)


def test_the_report_shows_the_picture(folder):
    page = write_report(folder, decode=chr).read_text()
    assert "[image 6x4]" in page and "data:image/png;base64," in page


def test_a_blind_engine_is_refused_before_the_run(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "blind_engine.py").write_text(
        "from miles_core.testing.toy.engine import ToyEngine\n\n\nclass Blind(ToyEngine):\n    pass\n"
    )
    data = {"use": "file", "path": tasks(tmp_path)}
    with pytest.raises(RequestError) as raised:
        run_recipe(tmp_path, model={"use": "toy", "images": True}, data=data, engine={"use": "blind_engine:Blind"})
    assert "the task has an image, and engine" in str(raised.value)
    assert not list((tmp_path / "runs").glob("*"))


def test_a_model_without_images_is_refused_with_the_task(tmp_path):
    with pytest.raises(RequestError, match="takes none"):
        run_recipe(tmp_path, data={"use": "file", "path": tasks(tmp_path)})
