"""The tiny model once more, in plain numpy and float64: what engines' and trainers' log-probs are compared with.

Llama as its configuration says (RMSNorm, rotary embeddings of rotated halves, grouped-query attention, SwiGLU, tied
output), one sequence at a time, with nothing cached, packed or padded.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from miles_core.types.sequence import Array, TokenArray


class ReferenceLlama:
    """Reads a directory that `tiny_model` wrote."""

    def __init__(self, folder: Path) -> None:
        from safetensors.numpy import load_file

        self._weights = {name: w.astype(np.float64) for name, w in load_file(folder / "model.safetensors").items()}
        config = json.loads((folder / "config.json").read_text())
        self._layers, self._size = config["num_hidden_layers"], config["head_dim"]
        self._heads, self._kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self._epsilon, self._theta = config["rms_norm_eps"], config["rope_theta"]

    def distributions(self, tokens: TokenArray, temperature: float = 1.0) -> Array:
        """[n, vocabulary] log-probs of the token that follows each of the n tokens."""
        x = self._weights["model.embed_tokens.weight"][tokens]
        for layer in range(self._layers):
            at = f"model.layers.{layer}"
            x = x + self._attention(self._norm(x, f"{at}.input_layernorm"), f"{at}.self_attn")
            x = x + self._mlp(self._norm(x, f"{at}.post_attention_layernorm"), f"{at}.mlp")
        logits = self._norm(x, "model.norm") @ self._weights["model.embed_tokens.weight"].T / temperature
        result: Array = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        return result

    def logprobs(self, tokens: TokenArray, temperature: float = 1.0) -> Array:
        """[n] log-prob of each token after those before it; 0 for the first."""
        found = self.distributions(tokens, temperature)[np.arange(len(tokens) - 1), tokens[1:]]
        return np.concatenate([[0.0], found])

    def _linear(self, x: Array, name: str) -> Array:
        result: Array = x @ self._weights[f"{name}.weight"].T
        return result

    def _norm(self, x: Array, name: str) -> Array:
        scale = np.sqrt((x * x).mean(-1, keepdims=True) + self._epsilon)
        result: Array = x / scale * self._weights[f"{name}.weight"]
        return result

    def _attention(self, x: Array, at: str) -> Array:
        n = len(x)
        q = self._rotated(self._linear(x, f"{at}.q_proj").reshape(n, self._heads, self._size))
        k = self._rotated(self._linear(x, f"{at}.k_proj").reshape(n, self._kv_heads, self._size))
        v = self._linear(x, f"{at}.v_proj").reshape(n, self._kv_heads, self._size)
        k, v = (np.repeat(each, self._heads // self._kv_heads, axis=1) for each in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(self._size)
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return self._linear(np.einsum("hij,jhd->ihd", weights, v).reshape(n, -1), f"{at}.o_proj")

    def _rotated(self, x: Array) -> Array:
        """x [n, heads, size] turned by its position."""
        half = self._size // 2
        angles = np.arange(len(x))[:, None, None] * self._theta ** (-np.arange(half) / half)
        first, second = x[..., :half], x[..., half:]
        sine, cosine = np.sin(angles), np.cos(angles)
        return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)

    def _mlp(self, x: Array, at: str) -> Array:
        gate = self._linear(x, f"{at}.gate_proj")
        return self._linear(gate / (1 + np.exp(-gate)) * self._linear(x, f"{at}.up_proj"), f"{at}.down_proj")
