"""The tensors that losses and corrections are tried with: torch's where the plugin uses torch, else numpy's."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from miles_core.contracts.component import load_attribute
from miles_core.contracts.learning import LossInputs, TokenTerms
from miles_core.testing.kit.check import expect, skip
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.batch import Row
from miles_core.types.sequence import Array


@dataclass(frozen=True, slots=True)
class Tensors:
    """Makes and reads tensors of one library. `torch` is the module, None for numpy."""

    torch: Any = None

    @property
    def carries_gradients(self) -> bool:
        return self.torch is not None

    def of(self, values: Array, *, gradient: bool = False) -> Any:
        """A tensor of its own memory; `gradient`: one whose gradient can be asked for."""
        if self.torch is None:
            return np.array(values)
        return self.torch.tensor(values).requires_grad_(gradient)

    def array(self, tensor: Any) -> Array:
        """The numbers of a tensor, float64."""
        if self.torch is not None and isinstance(tensor, self.torch.Tensor):
            tensor = tensor.detach().cpu().double().numpy()
        return np.asarray(tensor, np.float64)

    def attached(self, tensor: Any) -> bool:
        """Whether a gradient flows through it."""
        return bool(getattr(tensor, "requires_grad", False))


def tensors_of(subject: ComponentSubject) -> Tensors:
    """What this component computes with: torch where its package asks for torch or its code names it."""
    needs_torch = any(line.split(";")[0].strip().startswith("torch") for line in subject.plugin.requires)
    if not needs_torch and not _names_torch(subject.registered.component.factory):
        return Tensors()
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        skip(f"it computes with torch, and torch cannot be imported here: {error}")
    torch.set_num_threads(1)
    return Tensors(torch)


def _names_torch(factory: str) -> bool:
    """Whether a module of the factory's package holds torch, or something of torch's."""
    load_attribute(factory)
    root = factory.partition(":")[0].partition(".")[0]
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == root]
    if root == "miles_core":
        return False
    return any(_of_torch(value) for module in modules for value in list(vars(module).values()))


def _of_torch(value: Any) -> bool:
    owner = value.__name__ if isinstance(value, type(sys)) else getattr(value, "__module__", "")
    return isinstance(owner, str) and owner.partition(".")[0] == "torch"


def check_terms(terms: TokenTerms[Any], tensors: Tensors, count: int, what: str) -> None:
    """`values` and every metric are [T] and finite."""
    expect(isinstance(terms, TokenTerms), f"{what} returned {type(terms).__name__}", "return a miles_core.TokenTerms")
    for name, tensor in _named(terms):
        array = tensors.array(tensor)
        expect(
            array.shape == (count,),
            f"{what}: {name} has shape {array.shape}, there are {count} sampled tokens",
            f"give one number for each token: {name} is a tensor [T]",
        )
        wrong_values = array[~np.isfinite(array)]
        expect(
            not len(wrong_values),
            f"{what}: {name} is {wrong_values[:1]} for a token whose inputs are ordinary numbers",
            "find the division by 0, the log of 0 or the overflow",
        )
    wrong = [name for name in (*terms.means, *terms.maxima) if not isinstance(name, str) or not name]
    expect(not wrong, f"{what}: metric names {wrong} are no names", "name metrics with words, such as clip_fraction")


def _named(terms: TokenTerms[Any]) -> Iterator[tuple[str, Any]]:
    yield "values", terms.values
    for name, tensor in terms.means.items():
        yield f"means[{name!r}]", tensor
    for name, tensor in terms.maxima.items():
        yield f"maxima[{name!r}]", tensor


def flat_inputs(
    rows: list[Row], columns: dict[str, list[Array]], tensors: Tensors, needs: tuple[bool, bool]
) -> LossInputs[Any]:
    """What a trainer gives a loss for these rows. `columns` have one array a row at its sampled tokens; `needs`:
    rollout log-probs, reference log-probs. The others are None."""
    flat = {name: np.concatenate(arrays).astype(np.float32) for name, arrays in columns.items()}
    counts = [row.sequence.sampled_count for row in rows]
    names = list(dict.fromkeys(row.trajectory for row in rows))
    places = np.array([names.index(row.trajectory) for row in rows])
    return LossInputs(
        logprobs=tensors.of(flat["logprobs"], gradient=True),
        old_logprobs=tensors.of(flat["old_logprobs"]),
        rollout_logprobs=tensors.of(flat["rollout_logprobs"]) if needs[0] else None,
        reference_logprobs=tensors.of(flat["reference_logprobs"]) if needs[1] else None,
        advantages=tensors.of(flat["advantages"]),
        correction=tensors.of(flat["correction"]),
        row=tensors.of(np.repeat(np.arange(len(rows)), counts)),
        trajectory=tensors.of(np.repeat(places, counts)),
    )
