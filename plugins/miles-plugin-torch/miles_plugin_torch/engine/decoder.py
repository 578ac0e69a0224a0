"""What the scheduler asks of a model, and the dense Llama family computed for few rows at a time.

h   = embed(tokens)
q,k = rope(qk_norm(W_q n(h))), rope(qk_norm(W_k n(h)));  v = W_v n(h);  n = RMSNorm
h  += W_o attend(q, k, v)
h  += W_down (silu(W_gate n(h)) * W_up n(h))
logits = W_head n(h)

Attention is a callback, so that where keys and values live is not the decoder's business. Rotary pairs (i, i + d/2) are
stored side by side (the rows of W_q and W_k are permuted alike, which leaves every q·k as it was): a rotation is then
one complex multiplication.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F

from miles_core import TensorInfo
from miles_plugin_torch.engine.architecture import DenseShape
from miles_plugin_torch.engine.dense_weights import DenseStaging, DenseWeights
from miles_plugin_torch.engine.sampling import BLOCK
from miles_plugin_torch.vision import Vision

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor, float], torch.Tensor]
"""attend(layer, q [T, heads, d], k [T, kv_heads, d], v [T, kv_heads, d], scale) -> [T, heads, d]."""


class Staging(Protocol):
    """New weights on their way in; the ones in use are untouched until `Decoder.adopt`."""

    def put(self, name: str, tensor: torch.Tensor) -> None:
        """Take one tensor by its Hugging Face name; its shape has been checked."""
        ...


class Decoder(Protocol):
    """A model as the scheduler sees it. `final` states are what `logits` turns into logits."""

    layers: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context: int
    tensors: tuple[TensorInfo, ...]
    aliases: dict[str, str]
    """Names that a checkpoint may also contain, and the tensor that each must be equal to (a tied head)."""
    vision: Vision | None
    """Of a model that sees: tokens are then keys, and positions have three axes."""

    def staging(self) -> Staging: ...
    def adopt(self, staging: Staging) -> None: ...
    def drop(self) -> None:
        """Forget the weights in use."""
        ...

    def final(
        self, tokens: torch.Tensor, positions: torch.Tensor, attend: Attend, keep: torch.Tensor | None
    ) -> torch.Tensor:
        """Run tokens int64 [T] at positions int64 [T] ([3, T] of a model that sees); the final states [R, width] of
        rows `keep` (None: all)."""
        ...

    def logits(self, final: torch.Tensor) -> torch.Tensor:
        """[R, width] -> float32 [blocks, R, BLOCK] as `sampling.choose` takes it, which may overwrite it."""
        ...


class DenseDecoder:
    """LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM without transformers."""

    vision = None

    def __init__(self, shape: DenseShape, device: torch.device, dtype: torch.dtype) -> None:
        self.shape = shape
        self.layers, self.kv_heads, self.head_dim = shape.layers, shape.kv_heads, shape.head_dim
        self.vocabulary, self.context = shape.vocabulary, shape.context
        self.tensors = shape.tensors(str(dtype).removeprefix("torch."))
        self.aliases = {"lm_head.weight": "model.embed_tokens.weight"} if shape.tied else {}
        self._device, self._dtype = device, dtype
        self._weights: DenseWeights | None = None
        self._frequencies = shape.inverse_frequencies.to(device)

    def staging(self) -> DenseStaging:
        return DenseStaging(self.shape, self._device, self._dtype, self._weights)

    def adopt(self, staging: Staging) -> None:
        assert isinstance(staging, DenseStaging)
        self._weights = staging.complete()

    def drop(self) -> None:
        self._weights = None

    def final(
        self, tokens: torch.Tensor, positions: torch.Tensor, attend: Attend, keep: torch.Tensor | None
    ) -> torch.Tensor:
        weights, shape = self._usable(), self.shape
        scale = shape.head_dim**-0.5
        rotation = self._rotation(positions)
        h = weights.embed(tokens)
        for index, layer in enumerate(weights.layers):
            qkv = layer.qkv.product(self._norm(h, layer.input_norm))
            q, k, v = self._split(qkv, rotation, layer.q_norm, layer.k_norm)
            mixed = attend(index, q, k, v, scale).reshape(len(h), shape.q_size)
            if keep is not None and index == shape.layers - 1:
                h, mixed = h[keep], mixed[keep]  # nothing after the last attention looks at other rows
            layer.out.add_product(mixed, h)
            layer.down.add_product(self._gated(layer.gate_up.product(self._norm(h, layer.post_norm))), h)
        return self._norm(h, weights.norm)

    def logits(self, final: torch.Tensor) -> torch.Tensor:
        logits = self._usable().head.product(final).float()
        beyond = len(logits) * BLOCK - self.vocabulary
        if beyond:
            logits[-1, :, BLOCK - beyond :] = float("-inf")
        return logits

    def _usable(self) -> DenseWeights:
        if self._weights is None:
            raise RuntimeError("the decoder has no weights")
        return self._weights

    def _norm(self, h: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(h, (h.shape[-1],), weight, self.shape.eps)

    def _rotation(self, positions: torch.Tensor) -> torch.Tensor:
        """complex64 [T, 1, d/2]: e^(i · position · frequency)."""
        angles = positions.to(torch.float32).unsqueeze(-1) * self._frequencies
        return torch.polar(torch.full_like(angles, self.shape.rope_scale), angles).unsqueeze(1)

    def _split(
        self,
        qkv: torch.Tensor,
        rotation: torch.Tensor,
        q_norm: torch.Tensor | None,
        k_norm: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """qkv [P, T, width] -> q [T, heads, d], k and v [T, kv_heads, d]; q and k rotated."""
        shape, (_, count, width) = self.shape, qkv.shape
        by_head = qkv.view(-1, count, width // shape.head_dim, shape.head_dim)
        q_panels, v_panels = shape.q_size // width, shape.kv_size // width
        turned, v = by_head[:-v_panels], by_head[-v_panels:]
        if q_norm is not None and k_norm is not None:
            turned[:q_panels] = self._norm(turned[:q_panels], q_norm)
            turned[q_panels:] = self._norm(turned[q_panels:], k_norm)
        pairs = torch.view_as_complex(turned.float().view(*turned.shape[:-1], -1, 2))
        rotated = torch.empty(count, *pairs.shape[:1], *pairs.shape[2:], dtype=pairs.dtype, device=pairs.device)
        torch.mul(pairs, rotation, out=rotated.transpose(0, 1))
        qk = torch.view_as_real(rotated).view(count, -1, shape.head_dim).to(qkv.dtype)
        return qk[:, : shape.heads], qk[:, shape.heads :], v.transpose(0, 1).reshape(count, -1, shape.head_dim)

    def _gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        """[2P, T, width] (all gates, then all ups) -> silu(gate) * up as [T, intermediate]."""
        panels, count, width = len(gate_up) // 2, gate_up.shape[1], gate_up.shape[2]
        gate, up = gate_up[:panels], gate_up[panels:]
        product = torch.empty(count, panels, width, dtype=gate_up.dtype, device=gate_up.device)
        torch.mul(F.silu(gate, inplace=True), up, out=product.transpose(0, 1))
        return product.view(count, panels * width)
