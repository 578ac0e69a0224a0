"""AdamW with warm-up, a schedule and clipping: one call a step, its whole state as named tensors."""

from __future__ import annotations

import math

import torch
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from miles_core import RequestError, RunError
from miles_plugin_torch.trainer.options import TorchTrainerOptions


def learning_rate(options: TorchTrainerOptions, step: int) -> float:
    """The learning rate of optimizer step `step`, from 0.

    Warm-up rises linearly to the peak at step `warmup_steps - 1` (the first step is never 0). From there on constant,
    or with x = (step - warmup) / (total - warmup): linear 1 - x, cosine (1 + cos(pi x)) / 2; 0 from `total_steps` on.
    """
    if step < options.warmup_steps:
        return options.learning_rate * (step + 1) / options.warmup_steps
    if options.schedule == "constant":
        return options.learning_rate
    assert options.total_steps is not None
    x = min(1.0, (step - options.warmup_steps) / (options.total_steps - options.warmup_steps))
    return options.learning_rate * (1 - x if options.schedule == "linear" else (1 + math.cos(math.pi * x)) / 2)


class Optimizer:
    """AdamW over named parameters that require a gradient."""

    def __init__(self, parameters: dict[str, torch.nn.Parameter], options: TorchTrainerOptions) -> None:
        self.steps = 0
        self._options = options
        self._parameters = parameters
        self._adamw = torch.optim.AdamW(
            list(parameters.values()),
            lr=options.learning_rate,
            betas=options.betas,
            eps=options.eps,
            weight_decay=options.weight_decay,
            fused=True,  # no temporaries of the model's size
        )

    def step(self) -> dict[str, float]:
        """Clip the gradients that are in place, take a step, drop them. Returns metrics.

        A parameter without a gradient counts as having a zero one, so that skipping rows of weight 0 changes nothing.
        Raises RunError, with weights and state untouched, when the gradient's norm is not finite.
        """
        for parameter in self._parameters.values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in self._parameters.values() if parameter.grad is not None]
        norm = get_total_norm(gradients)
        if not torch.isfinite(norm):
            raise RunError(f"the gradient norm is {norm.item()}: {self._worst()}")
        if self._options.max_grad_norm is not None:
            clip_grads_with_norm_(self._parameters.values(), self._options.max_grad_norm, norm)
        rate = learning_rate(self._options, self.steps)
        for group in self._adamw.param_groups:
            group["lr"] = rate
        self._adamw.step()
        self.steps += 1
        self.drop_gradients()
        return {"trainer/grad_norm": float(norm), "trainer/learning_rate": rate}

    def drop_gradients(self) -> None:
        self._adamw.zero_grad(set_to_none=True)

    def state(self) -> dict[str, torch.Tensor]:
        """Every tensor of AdamW's state, named `<what>:<parameter>`."""
        return {
            f"{what}:{name}": value
            for name, parameter in self._parameters.items()
            for what, value in self._adamw.state[parameter].items()
        }

    def restore(self, steps: int, state: dict[str, torch.Tensor]) -> None:
        """Raises RequestError when the state belongs to other parameters."""
        found: dict[str, dict[str, torch.Tensor]] = {}
        for key, value in state.items():
            what, _, name = key.partition(":")
            found.setdefault(name, {})[what] = value
        if found and set(found) != set(self._parameters):
            raise RequestError(
                "the checkpoint's optimizer state is of other weights than these options train",
                mend="resume with the same trainer.train",
            )
        self.steps = steps
        self._adamw.state.clear()
        for name, parts in found.items():
            parameter = self._parameters[name]
            self._adamw.state[parameter] = {
                # a copy for each parameter: AdamW counts `step` up in place
                what: value.to(parameter.device, copy=True)
                for what, value in parts.items()
            }

    def _worst(self) -> str:
        bad = [name for name, p in self._parameters.items() if p.grad is not None and not p.grad.isfinite().all()]
        return f"not finite in {', '.join(bad[:3])}{' and others' if len(bad) > 3 else ''}" if bad else "it overflowed"
