"""A model's files as a torch module whose attention is the registered function of `attention`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel
from transformers.utils import logging as transformers_logging

from miles_core import ModelFiles, RequestError, load_attribute
from miles_plugin_torch.attention import ATTENTION, supports
from miles_plugin_torch.vision import ARCHITECTURES

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


def load_model(
    files: ModelFiles, *, dtype: str = "float32", device: str = "cpu", weights: bool = True
) -> PreTrainedModel:
    """The causal language model in `files.path`, in evaluation mode, on `device`.

    dtype    one of DTYPES: what weights and computation use
    weights  False: only the architecture; the weights' values are arbitrary until they are loaded

    Raises RequestError that names the folder when it is missing or damaged, when weights are missing or have other
    shapes than the configuration says, and when the architecture's attention cannot run on the callback.
    """
    path = files.path
    if not (path / "config.json").is_file():
        raise RequestError(
            f"model folder {path} has no config.json",
            where=str(path),
            mend="give a Hugging Face directory with config.json, safetensors and tokenizer.json",
        )
    transformers_logging.disable_progress_bar()  # a worker's output is a log, not a terminal
    try:
        model = _build(files, DTYPES[dtype], weights)
    except (OSError, SafetensorError, StrictDataclassError, RuntimeError, ValueError, KeyError) as error:
        raise RequestError(
            f"model {files.card.name!r} could not be loaded: {type(error).__name__}: {error}",
            where=str(path),
            mend="the folder is incomplete or damaged: fetch or convert the model again",
        ) from error
    reason = supports(model.config.get_text_config())
    if reason is not None:
        raise RequestError(
            f"model {files.card.name!r} ({files.card.architecture}) cannot run on the torch plugin: {reason}",
            where=str(path),
        )
    return model.to(torch.device(device)).eval()


def _build(files: ModelFiles, dtype: torch.dtype, weights: bool) -> PreTrainedModel:
    if files.builder is not None:
        model = load_attribute(files.builder)(files.path).to(dtype)
        model.set_attn_implementation(ATTENTION)
        return model
    classes: Any = AutoModelForCausalLM
    attention: Any = ATTENTION
    if files.card.architecture in ARCHITECTURES:
        classes, attention = (
            AutoModelForImageTextToText,
            {"": ATTENTION, "text_config": ATTENTION, "vision_config": "sdpa"},
        )
    if not weights:
        config = AutoConfig.from_pretrained(files.path)
        return classes.from_config(config, dtype=dtype, attn_implementation=attention)
    model, report = classes.from_pretrained(
        files.path, dtype=dtype, attn_implementation=attention, use_safetensors=True, output_loading_info=True
    )
    _check_complete(files.path, report)
    return model


def _check_complete(path: Path, report: dict[str, object]) -> None:
    """transformers fills missing weights with random numbers and says so only in a log: here that is an error."""
    for fault in ("missing_keys", "mismatched_keys", "unexpected_keys"):
        found = report.get(fault)
        if found:
            names = sorted(str(name) for name in found)  # type: ignore[attr-defined]
            shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            raise RequestError(
                f"the weights in {path} do not fit its config.json: {fault.replace('_', ' ')}: {shown}",
                where=str(path),
                mend="the folder mixes two models or is damaged: fetch or convert the model again",
            )
