"""Tasks that show images: read from beside the data file, and told by line where they are not there."""

from __future__ import annotations

import base64
import json

import pytest

from miles_core import BuildContext, ImageFile, RequestError
from miles_core.rollout.file_data import FileData, FileDataOptions
from miles_core.testing import make_png

RED = make_png(5, 3)
URL = f"data:image/png;base64,{base64.b64encode(RED).decode()}"


def data_of(folder, *contents, name="tasks.jsonl"):
    rows = [json.dumps({"messages": [{"role": "user", "content": each}], "answer": "3"}) for each in contents]
    (folder / name).write_text("\n".join(rows) + "\n")
    return FileData(FileDataOptions(path=folder / name), BuildContext(1, "data"))


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "pictures/red.png"}},
        {"type": "image_url", "image_url": URL},
        {"type": "image", "image": "pictures/red.png"},
        {"type": "image", "image": {"bytes": None, "path": "pictures/red.png"}, "text": None},
    ],
)
def test_an_image_beside_the_file(tmp_path, part):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "red.png").write_bytes(RED)
    data = data_of(tmp_path, [{"type": "text", "text": "what?", "image": None}, part])
    content = data.draw().task.prompt[0]["content"]
    assert content == [{"type": "text", "text": "what?"}, ImageFile.of(RED).part]


def test_parquet_with_bytes(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = [{"type": "text", "text": "what?"}, {"type": "image", "image": {"bytes": RED}}]
    pq.write_table(
        pa.Table.from_pylist([{"messages": [{"role": "user", "content": parts}]}]), tmp_path / "tasks.parquet"
    )
    data = FileData(FileDataOptions(path=tmp_path / "tasks.parquet"), BuildContext(1, "data"))
    assert data.draw().task.prompt[0]["content"][1] == ImageFile.of(RED).part


def test_every_fault_with_its_line(tmp_path):
    (tmp_path / "torn.png").write_bytes(RED[:9])
    with pytest.raises(RequestError) as raised:
        data_of(
            tmp_path,
            [{"type": "image", "image": "absent.png"}],
            [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}],
            [{"type": "image_url", "image_url": {"url": "torn.png"}}],
        )
    told = [(problem.what, problem.where.rpartition(":")[2]) for problem in raised.value.problems]
    assert "absent.png" in told[0][0] and told[0][1] == "1"
    assert "nothing is fetched" in told[1][0] and told[1][1] == "2"
    assert "cut or damaged" in told[2][0] and told[2][1] == "3"


def test_a_changed_image_is_another_data_set(tmp_path):
    (tmp_path / "red.png").write_bytes(RED)
    state = data_of(tmp_path, [{"type": "image", "image": "red.png"}]).state()
    (tmp_path / "red.png").write_bytes(make_png(5, 3, seed=9))
    with pytest.raises(RequestError, match="changed"):
        data_of(tmp_path, [{"type": "image", "image": "red.png"}]).restore(state)
