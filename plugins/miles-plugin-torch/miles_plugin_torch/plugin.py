"""What this package provides: an engine and a trainer, both named `torch`. Importing this module imports no torch."""

from __future__ import annotations

from miles_core import Component, hookimpl


@hookimpl
def miles_engines() -> list[Component]:
    return [
        Component(
            "torch",
            factory="miles_plugin_torch.engine.torch_engine:TorchEngine",
            options="miles_plugin_torch.engine.options:TorchEngineOptions",
            summary="Continuous batching in plain PyTorch, the prompt of a group computed once",
            capabilities=frozenset({"shared-prefix", "images"}),
            example={"threads": 1},
        )
    ]


@hookimpl
def miles_trainers() -> list[Component]:
    return [
        Component(
            "torch",
            factory="miles_plugin_torch.trainer.torch_trainer:TorchTrainer",
            options="miles_plugin_torch.trainer.options:TorchTrainerOptions",
            summary="AdamW on packed sequences, the prompt of a group computed once; full model or the last N layers",
            capabilities=frozenset({"shared-prefix", "images"}),
            example={"threads": 1, "learning_rate": 0.01},
        )
    ]
