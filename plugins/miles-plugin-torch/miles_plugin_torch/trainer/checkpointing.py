"""A trainer's state as files, and its model as a Hugging Face directory. No pickle.

model.safetensors       every weight, by its Hugging Face name
optimizer.safetensors   AdamW's tensors as `<what>:<weight>`, and random states as `rng:<device>`
reference.safetensors   the reference weights, when the run has some
trainer.json            {"format": 1, "optimizer_steps": n}
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import PreTrainedModel

from miles_core import RequestError
from miles_plugin_torch.trainer.optimizing import Optimizer
from miles_plugin_torch.trainer.tensor_file import write_tensors

FORMAT = 1

TOKENIZER_FILES = (
    "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "*.jinja", "*.tiktoken",
    "*.model", "generation_config.json", "*processor_config.json", "LICENSE*", "NOTICE*",
)  # fmt: skip

Tensors = dict[str, torch.Tensor]


def model_tensors(model: PreTrainedModel) -> Tensors:
    """Every weight and persistent buffer once, under the name that a checkpoint of the model has; live, detached.

    A tied weight has the name of its first use (the embedding's, for a tied output matrix), as transformers saves it.
    """
    seen: set[int] = set()
    tensors: Tensors = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            tensors[name] = tensor
    return tensors


def save_trainer(folder: Path, model: PreTrainedModel, optimizer: Optimizer, reference: Tensors | None) -> None:
    """Write the files into an existing empty folder. Raises OSError when they cannot be written."""
    try:
        _write(folder, model, optimizer, reference)
    except SafetensorError as error:  # what a full disk raises from inside safetensors
        raise OSError(str(error)) from error


def _write(folder: Path, model: PreTrainedModel, optimizer: Optimizer, reference: Tensors | None) -> None:
    write_tensors(model_tensors(model), folder / "model.safetensors")
    write_tensors({**optimizer.state(), **_random_states()}, folder / "optimizer.safetensors")
    if reference is not None:
        write_tensors(reference, folder / "reference.safetensors")
    facts = {"format": FORMAT, "optimizer_steps": optimizer.steps}
    (folder / "trainer.json").write_text(json.dumps(facts) + "\n")


def load_trainer(folder: Path, model: PreTrainedModel, optimizer: Optimizer) -> Tensors | None:
    """Put the saved state in place; returns the reference weights, if any.

    Raises RequestError, before anything is changed, when files are missing or damaged or belong to another model.
    """
    try:
        facts = json.loads((folder / "trainer.json").read_text())
        weights = load_file(folder / "model.safetensors")
        state = load_file(folder / "optimizer.safetensors")
        kept = folder / "reference.safetensors"
        reference = load_file(kept) if kept.exists() else None
    except (OSError, ValueError, SafetensorError) as error:
        raise RequestError(
            f"the trainer's checkpoint cannot be read: {type(error).__name__}: {error}", where=str(folder)
        ) from error
    if facts.get("format") != FORMAT:
        raise RequestError(f"the checkpoint has format {facts.get('format')}, expected {FORMAT}", where=str(folder))
    own = model_tensors(model)
    _require_same(own, weights, folder)
    random_states = {name: state.pop(name) for name in list(state) if name.startswith("rng:")}
    optimizer.restore(int(facts["optimizer_steps"]), state)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(weights[name])
    _restore_random_states(random_states)
    return None if reference is None else {name: value.to(model.device) for name, value in reference.items()}


def export_model(folder: Path, model: PreTrainedModel, source: Path) -> None:
    """A directory that `AutoModelForCausalLM.from_pretrained` and `AutoTokenizer.from_pretrained` load."""
    model.save_pretrained(folder)
    for pattern in TOKENIZER_FILES:
        for file in sorted(source.glob(pattern)):
            if file.is_file():
                shutil.copyfile(file, folder / file.name)


def _require_same(own: Tensors, found: Tensors, folder: Path) -> None:
    for name in [*own, *found]:
        have = tuple(own[name].shape) if name in own else None
        got = tuple(found[name].shape) if name in found else None
        if have != got:
            raise RequestError(
                f"the checkpoint belongs to another model: {name} is {got or 'missing'} in it and "
                f"{have or 'missing'} in the model",
                where=str(folder),
            )


def _random_states() -> Tensors:
    states = {"rng:cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["rng:cuda"] = torch.cuda.get_rng_state()
    return states


def _restore_random_states(states: Tensors) -> None:
    torch.set_rng_state(states["rng:cpu"])
    if "rng:cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["rng:cuda"])
