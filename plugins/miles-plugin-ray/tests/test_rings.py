"""The same recipe under `local` and `ray`, and weights by way of the object store: the same bits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from miles_plugin_ray.connection import Connection
from miles_plugin_ray.object_store import ObjectStoreTransport
from miles_plugin_ray.options import ObjectStoreOptions

from miles_core import BuildContext, Delivery, RequestError, Run, RunError, TensorInfo, WireTensor, run

RAY = {"use": "ray", "cpus_per_engine": 0.5, "cpus_per_trainer": 0.5, "start_seconds": 120}
RECIPE: dict[str, Any] = {
    "miles": 1,
    "name": "toy",
    "seed": 1,
    "plugins": ["toy", "ray"],
    "model": {"use": "toy"},
    "data": {"use": "file", "path": "tasks.jsonl"},
    "schedule": {"use": "sync", "groups_per_step": 3, "group_size": 4},
    "generator": {"use": "single-turn", "sampling": {"max_new_tokens": 8}},
    "rewards": [{"use": "toy_rewards:share_of_a"}],
    "advantage": {"use": "toy"},
    "loss": {"use": "toy"},
    "engine": {"use": "toy", "replicas": 2},
    "trainer": {"use": "toy"},
    "steps": 4,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [json.dumps({"id": f"p{n}", "prompt": f"p{n}", "answer": "a"}) for n in range(24)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(rows) + "\n")
    (tmp_path / "toy_rewards.py").write_text("def share_of_a(text):\n    return text.count('a') / max(len(text), 1)\n")
    return tmp_path


def ring(folder: Path, **changes: Any) -> Run:
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({**RECIPE, **changes}, sort_keys=False))
    return run(recipe, runs_dir=folder / "runs", view="none")


def numbers(done: Run) -> list[dict[str, Any]]:
    return [{k: v for k, v in record.items() if not k.startswith("time/")} for record in done.metrics]


def test_local_and_ray_give_the_same_numbers(cluster: Connection, folder: Path):
    local = numbers(ring(folder, runtime={"use": "local"}))
    assert len(local) == 4
    assert numbers(ring(folder, runtime=RAY)) == local
    assert numbers(ring(folder, runtime=RAY, transport={"use": "ray-object-store"})) == local


def test_actors_that_die_take_nothing_with_them(cluster: Connection, folder: Path):
    """An engine and the trainer each end their process once, in the middle of the run."""
    (folder / "mortal.py").write_text(
        "import os\nfrom pathlib import Path\n"
        "from miles_core.testing.toy.engine import ToyEngine, ToyEngineOptions\n"
        "from miles_core.testing.toy.trainer import ToyTrainer, ToyTrainerOptions\n"
        "def die_once(who):\n"
        "    if not Path(f'{who}.dead').exists():\n"
        "        Path(f'{who}.dead').touch()\n"
        "        os._exit(9)\n"
        "class Engine(ToyEngine):\n"
        "    Options = ToyEngineOptions\n"
        "    async def generate(self, request):\n"
        "        if request.id == 'g4.1': die_once('engine')\n"
        "        return await super().generate(request)\n"
        "class Trainer(ToyTrainer):\n"
        "    Options = ToyTrainerOptions\n"
        "    def step(self, batch):\n"
        "        if batch.step == 2: die_once('trainer')\n"
        "        return super().step(batch)\n"
    )
    whole = numbers(ring(folder, runtime={"use": "local"}))
    mortal = {"engine": {"use": "mortal:Engine", "replicas": 2}, "trainer": {"use": "mortal:Trainer"}}
    done = ring(folder, runtime=RAY, checkpoint={"every": 1}, faults={"restart_delay": 0.05}, **mortal)
    faults = ("time/", "engine/", "trainer/restores")
    kept = [{k: v for k, v in record.items() if not k.startswith(faults)} for record in numbers(done)]
    assert kept == [{k: v for k, v in record.items() if not k.startswith(faults)} for record in whole]
    assert (done.summary["faults"]["engines_lost"], done.summary["faults"]["restores"]) == (1, 1)


def test_a_spread_over_machines_needs_a_transport_that_crosses_them(folder: Path):
    spread = {**RAY, "address": "10.0.0.1:6379", "placement": "spread"}
    with pytest.raises(RequestError, match=r"(?s)'shared-memory' reaches only one.*ray-object-store"):
        ring(folder, runtime=spread, transport={"use": "shared-memory"})
    with pytest.raises(RequestError, match="`address` joins another one"):
        ring(folder, runtime={**RAY, "address": "10.0.0.1:6379", "cpus": 4})


def test_auto_crosses_machines_in_a_cluster_that_is_joined(folder: Path):
    joined = ["--set", "runtime.use=ray", "--set", "runtime.address=10.0.0.1:6379"]
    (folder / "recipe.yaml").write_text(yaml.safe_dump(RECIPE, sort_keys=False))
    for settings, transport, why in (
        ([], "shared-memory", "auto: engines and trainer share one machine"),
        (joined, "ray-object-store", "auto: the cluster at 10.0.0.1:6379 may be several machines, and "),
    ):
        miles = [sys.executable, "-m", "miles_core.cli.entry", "plan", "recipe.yaml", *settings]
        told = subprocess.run(miles, capture_output=True, text=True, check=True).stdout
        (line,) = [line for line in told.splitlines() if line.split()[:1] == ["transport.use"]]
        assert transport in line and why in line


def test_the_object_store_frees_what_is_released(cluster: Connection):
    transport = ObjectStoreTransport(ObjectStoreOptions(bucket_mib=1), BuildContext(1, "trainer"))
    sent = [_wire(n, size) for n, size in enumerate((10, 700_000, 700_000, 3_000_000, 0, 5))]
    for version in range(1, 41):  # 40 x 4.4 MB do not fit into 80 MiB at once
        delivery = transport.send(version, iter(sent))
        if version % 20 == 0:
            got = [(wire.info, wire.data.copy()) for wire in transport.receive(delivery)]
            assert [info for info, _ in got] == [wire.info for wire in sent]
            assert all(np.array_equal(data, wire.data) for (_, data), wire in zip(got, sent, strict=True))
        transport.release(version)
    transport.release(40)
    with pytest.raises(RunError, match="no longer in the object store"):
        list(transport.receive(delivery))
    gone = Delivery(delivery.form, delivery.transport, {**delivery.address, "shelf": "nobody"})
    with pytest.raises(RunError, match="could not be fetched"):
        list(transport.receive(gone))


def _wire(number: int, size: int) -> WireTensor:
    data = np.random.default_rng(number).integers(0, 256, size, np.uint8)
    return WireTensor(TensorInfo(f"t{number}", (size,), "uint8"), data)
