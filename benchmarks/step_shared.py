"""The work of `step.py`, the same for both sides: prompts, reward, parameters, injected completions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

THREADS = 1
PROMPTS = 4
GROUP = 8
INJECTED_PROMPTS = 2
PROMPT_TOKENS = 45
LEARNING_RATE = 1e-6
LAST_LAYERS = 4
LENGTHS_SEED = 5
SCENARIOS = {"full": {"new": 32, "natural": False}, "natural": {"new": 64, "natural": True}}
"""`full`: every completion has `new` tokens. `natural`: each has a length of its own (`natural_lengths`)."""

LENGTHS = (2, 3, 6, 7, 8, 8, 9, 9, 10, 12, 12, 14, 15, 18, 21, 23, 28, 32, 35, 38, 45, 52, 62)
"""Quantiles of the lengths of SmolLM2-135M-Instruct's answers to one-digit sums (temperature 1, end token included), of
those answers that end within 64 tokens: the same as in decode.py."""

QUESTIONS = (
    "What is {a} + {b}? Answer with the final number only.",
    "What is {a} - {b}? Answer with the final number only.",
)


def model_folder() -> Path:
    """SmolLM2-135M-Instruct as a Hugging Face directory, from the cache or fetched once."""
    from miles_plugin_smollm2.model import converted_folder

    return converted_folder()


def questions(count: int) -> list[str]:
    """`count` different one-digit sums whose chat prompt has exactly PROMPT_TOKENS tokens."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model_folder() / "tokenizer.json"))
    found = []
    for a in range(1, 10):
        for b in range(1, 10):
            for question in QUESTIONS:
                text = question.format(a=a, b=b)
                if len(tokenizer.encode(chat(text)).ids) == PROMPT_TOKENS:
                    found.append(text)
                    break
    if len(found) < count:
        raise SystemExit(f"only {len(found)} prompts of {PROMPT_TOKENS} tokens, {count} are needed")
    return found[:count]


def chat(question: str) -> str:
    """The question as SmolLM2's chat template renders it, with its default system message."""
    return (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    )


def natural_lengths() -> list[int]:
    """How many tokens each of the PROMPTS x GROUP completions has; the same for both sides and every step."""
    return np.random.default_rng(LENGTHS_SEED).choice(LENGTHS, PROMPTS * GROUP).tolist()


def reward(text: str) -> float:
    """Of no meaning, and different for most completions."""
    return (len(text) % 7) / 7


def injected(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Prompts int32 [P, 45], completions int32 [P, GROUP, 32] and rewards [P, GROUP], P = INJECTED_PROMPTS: what both
    sides are given when gradients are compared. Token 0 to 2 are left out: they end a completion."""
    rng = np.random.default_rng(seed)
    prompts = rng.integers(3, 49152, (INJECTED_PROMPTS, PROMPT_TOKENS), dtype=np.int32)
    completions = rng.integers(3, 49152, (INJECTED_PROMPTS, GROUP, SCENARIOS["full"]["new"]), dtype=np.int32)
    return prompts, completions, rng.random((INJECTED_PROMPTS, GROUP))
