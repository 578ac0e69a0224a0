"""A tiny Qwen3-VL with random weights, images for it, and transformers' own computation as the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from miles_core import GenerateRequest, ImageInput, ImageSpan, ModelCard, ModelFiles, NoiseKey, Sampling
from miles_core.testing import make_png

VOCABULARY, PAD, START, END = 120, 100, 101, 102


def make_model(folder: Path) -> ModelFiles:
    """Weights far from zero, so that an image matters."""
    torch.manual_seed(0)
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512,
            "tie_word_embeddings": True, "rope_parameters": rope,
        },
        vision_config={
            "depth": 3, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "patch_size": 4,
            "out_hidden_size": 32, "num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1],
        },
        image_token_id=PAD, video_token_id=103, vision_start_token_id=START, vision_end_token_id=END,
        tie_word_embeddings=True,
    )  # fmt: skip
    model = Qwen3VLForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3) if parameter.ndim > 1 else parameter.add_(0.1 * torch.randn(parameter.shape))
    model.save_pretrained(folder)
    parameters = sum(each.numel() for each in model.parameters())
    architecture = "Qwen3VLForConditionalGeneration"
    return ModelFiles(folder, ModelCard("seeing", architecture, 512, VOCABULARY, 32, 3, parameters, (2,)))


def make_image(rows: int, columns: int, seed: int) -> ImageInput:
    """An image of that many features."""
    rng = np.random.default_rng(seed)
    arrays = {
        "pixel_values": rng.normal(size=(4 * rows * columns, 3 * 2 * 4 * 4)).astype(np.float32),
        "image_grid_thw": np.array([[1, 2 * rows, 2 * columns]], np.int64),
    }
    return ImageInput.of(make_png(4, 4, seed=seed), "image/png", 4, 4, arrays)


def prompt_of(*parts: ImageInput | list[int]) -> tuple[np.ndarray, tuple[ImageSpan, ...]]:
    """Tokens, and the spans of the images among them, each between its marks."""
    tokens: list[int] = []
    spans = []
    for part in parts:
        if isinstance(part, list):
            tokens += part
            continue
        count = len(part.arrays["pixel_values"]) // 4
        spans.append(ImageSpan(len(tokens) + 1, len(tokens) + 1 + count, part))
        tokens += [START, *[PAD] * count, END]
    return np.array(tokens, np.int32), tuple(spans)


def asking(name: str, prompt, new: int = 8, **sampling) -> GenerateRequest:
    tokens, images = prompt
    noise = NoiseKey(seed=1, purpose="test", task=name, draw=0, index=0)
    return GenerateRequest(name, tokens, Sampling(max_new_tokens=new, **sampling), noise, name, images=images)


def reference_logprobs(files: ModelFiles, tokens: np.ndarray, images, temperature: float = 1.0) -> np.ndarray:
    """[n - 1] log-probs of tokens[1:], by transformers, which gets the whole row and every image at once."""
    model = Qwen3VLForConditionalGeneration.from_pretrained(files.path, dtype=torch.float32).eval()
    ids = torch.from_numpy(tokens.astype(np.int64))[None]
    types = torch.zeros_like(ids)
    for span in images:
        types[0, span.start : span.stop] = 1
    seen = {}
    if images:
        stacked = {name: np.concatenate([s.image.arrays[name] for s in images]) for name in images[0].image.arrays}
        seen = {name: torch.from_numpy(array) for name, array in stacked.items()} | {"mm_token_type_ids": types}
    with torch.no_grad():
        logits = model(input_ids=ids, **seen).logits[0].double() / temperature
    return torch.log_softmax(logits, -1)[:-1].gather(1, ids[0, 1:, None])[:, 0].numpy()
