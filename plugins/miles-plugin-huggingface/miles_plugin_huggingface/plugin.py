"""What this package registers."""

from __future__ import annotations

from collections.abc import Iterable

from miles_core import Component, hookimpl


@hookimpl
def miles_model_specs() -> Iterable[Component]:
    return [
        Component(
            "huggingface",
            factory="miles_plugin_huggingface.model:HuggingFaceModel",
            options="miles_plugin_huggingface.options:HuggingFaceOptions",
            summary="A model in a Hugging Face directory, or on the hub",
            example={"path": "model"},
        ),
        Component(
            "scratch",
            factory="miles_plugin_huggingface.scratch:ScratchModel",
            options="miles_plugin_huggingface.options:ScratchOptions",
            summary="A small Llama with random weights and a character vocabulary",
        ),
    ]
