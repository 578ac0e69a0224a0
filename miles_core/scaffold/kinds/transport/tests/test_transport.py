"""What is sent arrives, damage is noticed, and nothing is left behind."""

from pathlib import Path

import numpy as np
import pytest
from miles_core import BuildContext, RunError, TensorInfo, WireTensor

from miles_plugin_xyz.options import XyzOptions
from miles_plugin_xyz.transport import XyzTransport


def made(folder: Path) -> XyzTransport:
    options = XyzOptions()
    return XyzTransport(options, BuildContext(seed=1, name="transport", folder=folder))


def tensors() -> list[WireTensor]:
    source = np.random.default_rng(1)
    shapes = {"a": (3, 4), "empty": (0,), "scalar": ()}
    made_up = {name: source.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return [
        WireTensor(TensorInfo(name, values.shape, "float32"), np.atleast_1d(values).ravel().view(np.uint8))
        for name, values in made_up.items()
    ]


def test_what_is_sent_arrives(tmp_path: Path) -> None:
    sender, receiver = made(tmp_path), made(tmp_path)  # two processes in a run
    delivery = sender.send(7, tensors())
    received = [(tensor.info, tensor.data.tobytes()) for tensor in receiver.receive(delivery)]
    assert received == [(tensor.info, tensor.data.tobytes()) for tensor in tensors()]


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    sender = made(tmp_path)
    sender.send(7, tensors())
    sender.release(7)
    sender.release(7)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_noticed(tmp_path: Path) -> None:
    delivery = made(tmp_path).send(7, tensors())
    file = Path(delivery.address["tensors"][0]["file"])
    data = bytearray(file.read_bytes())
    data[0] ^= 1
    file.write_bytes(data)
    with pytest.raises(RunError, match="'a' of version 7 is damaged"):
        list(made(tmp_path).receive(delivery))
