"""What a recipe may say of the supervised loss. No torch here: recipes are validated without it."""

from __future__ import annotations

from collections.abc import Mapping

from miles_plugin_algorithms.reduction import ReduceOptions


class SupervisedOptions(ReduceOptions):
    """Supervised fine-tuning."""

    def card(self) -> Mapping[str, str]:
        return {
            "loss of a token": "minus its log-probability; advantages and importance weights are not read",
            **self.reduce_card(),
            "not a number, or infinite": "a loss that is not finite on a trained token stops the step",
        }
