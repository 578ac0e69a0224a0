"""What a recipe may write beside `trainer: {use: torch}`. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from miles_core import Options, RecipeFacts, TrainerOptions


class LastLayers(Options):
    """Train only the last decoder layers and the final norm; embeddings and the output matrix stay as they are."""

    last_layers: PositiveInt = Field(description="how many of the last decoder layers are trained")


class TorchTrainerOptions(TrainerOptions):
    """Options of the trainer `torch`."""

    learning_rate: PositiveFloat = Field(default=1e-6, description="peak learning rate of AdamW")
    betas: tuple[float, float] = Field(default=(0.9, 0.999), description="AdamW's decay of first and second moment")
    eps: PositiveFloat = Field(default=1e-8, description="AdamW's epsilon")
    weight_decay: NonNegativeFloat = Field(default=0.0, description="AdamW's decoupled weight decay, on every weight")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        default="constant", description="learning rate after the warm-up: constant, or falling to 0 at total_steps"
    )
    warmup_steps: NonNegativeInt = Field(default=0, description="optimizer steps of linear warm-up")
    total_steps: PositiveInt | None = Field(
        default=None, description="optimizer steps at which a linear or cosine schedule reaches 0"
    )
    max_grad_norm: PositiveFloat | None = Field(
        default=1.0, description="the gradient is scaled down to this norm; null: never"
    )
    train: Literal["full"] | LastLayers = Field(
        default="full", description="full, or {last_layers: N}: the last N decoder layers and the final norm"
    )
    micro_tokens: PositiveInt = Field(
        default=512,
        description="most tokens that go through the model at once: more need more memory, and on a CPU are no faster",
    )
    logit_tokens: PositiveInt = Field(
        default=512, description="most positions whose logits are in memory at once; beyond, they are computed twice"
    )
    share_prefix: bool = Field(default=True, description="compute the common prefix of a group's rows once for all")
    gradient_checkpointing: bool = Field(
        default=False, description="keep only each layer's input for the backward pass and compute the layer again"
    )
    device: str = Field(default="cpu", description="torch device, e.g. cpu or cuda")
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="dtype of computation; weights are kept in float32, `precision:` says how engines get them",
    )
    threads: PositiveInt | None = Field(default=None, description="torch threads; null: torch's own choice")

    @model_validator(mode="after")
    def _falling_schedules_need_an_end(self) -> Self:
        if self.schedule != "constant" and self.total_steps is None:
            raise ValueError(f"schedule {self.schedule} needs total_steps (optimizer steps in the whole run)")
        if self.total_steps is not None and self.warmup_steps >= self.total_steps:
            raise ValueError(f"warmup_steps {self.warmup_steps} must be below total_steps {self.total_steps}")
        return self

    def card(self) -> Mapping[str, str]:
        trained = "every weight"
        if isinstance(self.train, LastLayers):
            trained = f"the last {self.train.last_layers} decoder layers and the final norm"
        return {
            "trained weights": trained,
            "optimizer": (
                f"AdamW, learning rate {self.learning_rate:g} {self.schedule} after {self.warmup_steps} warm-up steps, "
                f"betas {self.betas[0]:g}/{self.betas[1]:g}, epsilon {self.eps:g}, weight decay {self.weight_decay:g}, "
                f"gradient norm at most {self.max_grad_norm}"
            ),
            "old log-probs": (
                "the log-probs of the same pass, detached (one optimizer step a batch)"
                if self.optimizer_steps == 1
                else "scored once a batch, before its first optimizer step"
            ),
        }

    def check(self, facts: RecipeFacts) -> Iterable[str]:
        layers = facts.model.layers if facts.model is not None else None
        if isinstance(self.train, LastLayers) and layers is not None and self.train.last_layers > layers:
            yield f"trainer.train.last_layers is {self.train.last_layers}, but the model has {layers} layers"
        steps = facts.steps * self.optimizer_steps
        if self.total_steps is not None and self.schedule != "constant" and self.total_steps < steps:
            yield (
                f"trainer.total_steps is {self.total_steps}, but the phase takes {steps} optimizer steps: "
                "the learning rate would be 0 for the rest"
            )
        trajectories = facts.group_size * facts.groups_per_step
        if self.optimizer_steps > trajectories:
            yield f"trainer.optimizer_steps is {self.optimizer_steps}, but a batch has {trajectories} trajectories"
