"""The supervised loss of each token of a demonstration: -log p (maximum likelihood, next-token cross-entropy)."""

from __future__ import annotations

from collections.abc import Sequence as Several

import numpy as np
import numpy.typing as npt
from torch import Tensor

from miles_core import BuildContext, LossInputs, Row, TokenTerms
from miles_plugin_algorithms.supervised_options import SupervisedOptions


class SupervisedLoss:
    """Keeps `miles_core.Loss[torch.Tensor]`. Stateless."""

    def __init__(self, options: SupervisedOptions, context: BuildContext) -> None:
        self.options = options

    @property
    def needs_rollout_logprobs(self) -> bool:
        return False

    @property
    def needs_reference(self) -> bool:
        return False

    def weights(self, rows: Several[Row]) -> list[npt.NDArray[np.float32]]:
        return self.options.weights(rows)

    def per_token(self, inputs: LossInputs[Tensor]) -> TokenTerms[Tensor]:
        """Values [T]; metrics `nll` (nats a token, whatever the reduction) and `nll_max`."""
        values = -inputs.logprobs
        nll = values.detach()
        return TokenTerms(values=values, means={"nll": nll}, maxima={"nll_max": nll})
