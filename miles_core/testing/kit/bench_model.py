"""The model that engines and trainers are tried on: one of the plugin's own when it is small, else the tiny Llama."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from miles_core.contracts.capabilities import TOY_MODEL
from miles_core.contracts.component import BuildContext, ComponentRef
from miles_core.contracts.model import ModelFiles
from miles_core.contracts.transport import TensorInfo, WireTensor
from miles_core.host.registry import Registered
from miles_core.testing.fakes.char_renderer import VOCABULARY
from miles_core.testing.fakes.tiny_model import tiny_model
from miles_core.testing.kit.check import skip
from miles_core.testing.kit.offline import offline
from miles_core.testing.kit.reference import ReferenceLlama
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.testing.kit.surroundings import toy_model
from miles_core.testing.toy.model import TENSOR

SMALL = 1_000_000
"""Parameters of a plugin's own model that the kit is ready to compute with."""


@dataclass(frozen=True, slots=True)
class BenchModel:
    """`files` and, of the tiny Llama, other weights by number. `infos`: the tensors of a model that has no files."""

    files: ModelFiles
    folder: Path
    tiny: bool
    infos: tuple[TensorInfo, ...] = ()

    def directory(self, number: int) -> Path:
        """A Hugging Face directory of the same architecture with the weights of that number."""
        if not self.tiny:
            return self.files.path
        where = self.folder / f"tiny-model-{number}"
        return where if where.exists() else tiny_model(where, seed=number).path

    def tensors(self, number: int) -> list[WireTensor]:
        """The weights of that number, as a trainer sends them."""
        if not self.tiny:
            return [_random(info, number) for info in self.infos]
        from safetensors.numpy import load_file

        loaded = load_file(self.directory(number) / "model.safetensors")
        return [
            WireTensor(TensorInfo(name, array.shape, "float32"), np.ascontiguousarray(array).reshape(-1).view(np.uint8))
            for name, array in loaded.items()
        ]

    def reference(self, number: int) -> ReferenceLlama | None:
        """What the log-probs under those weights are; None where no general reference knows the model."""
        return ReferenceLlama(self.directory(number)) if self.tiny else None


def bench_model(subject: ComponentSubject) -> BenchModel:
    """The plugin's own model where it has a small one with a trainer that names its tensors, the toy model where the
    component says that it knows no other, else the tiny Llama."""
    if TOY_MODEL in subject.registered.component.capabilities:
        return BenchModel(toy_model(), subject.folder, False, (TensorInfo(TENSOR, (VOCABULARY,), "float32"),))
    own = [each for each in subject.registry.components("model") if each.plugin == subject.plugin]
    trainers = [each for each in subject.registry.components("trainer") if each.plugin == subject.plugin]
    for registered in own if trainers else ():
        model = subject.beside(registered).build()
        with offline():
            if model.describe().parameters > SMALL:
                continue
            files = model.materialise()
        if (files.path / "config.json").exists():
            continue  # it may as well be the tiny one, whose log-probs are known
        trainer = subject.beside(trainers[0]).build(model=files, parts=parts_of_a_run(subject))
        infos = trainer.facts().tensors
        trainer.close()
        return BenchModel(files, subject.folder, False, infos)
    folder = subject.folder / "tiny-model-0"
    return BenchModel(tiny_model(folder), subject.folder, True)


def transport_ref(subject: ComponentSubject) -> ComponentRef:
    """The core's own transport between the processes of one machine."""
    return core_component(subject, "transport", "shared-memory").ref({})


def parts_of_a_run(subject: ComponentSubject) -> dict[str, ComponentRef]:
    """What an engine and a trainer are given in every run: the transport, and a precision that changes nothing."""
    return {"transport": transport_ref(subject), "precision": core_component(subject, "precision", "fp32").ref({})}


def sender(subject: ComponentSubject) -> Any:
    """The sending side of that transport, here."""
    return transport_ref(subject).build(BuildContext(1, "kit", subject.folder))


def core_component(subject: ComponentSubject, kind: str, name: str) -> Registered:
    found = [each for each in subject.registry.components(kind) if each.component.name == name]
    if not found:
        skip(f"the core's {kind} {name!r} is not enabled")
    return found[0]


def _random(info: TensorInfo, number: int) -> WireTensor:
    values = np.random.default_rng(number).standard_normal(info.shape).astype(np.float32)
    return WireTensor(TensorInfo(info.name, info.shape, "float32"), values.reshape(-1).view(np.uint8))
