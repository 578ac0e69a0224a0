"""The weights of a dense decoder in the layout it computes with, and the next ones while they arrive."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import torch
import torch.nn.functional as F

from miles_plugin_torch.engine.architecture import DenseShape
from miles_plugin_torch.engine.panels import WIDEST, Panels, panel_width
from miles_plugin_torch.engine.sampling import BLOCK


@dataclass(slots=True)
class DenseLayer:
    """One layer. `qkv` holds q, k, v one after the other, `gate_up` gate and up; q_norm and k_norm are permuted like
    the rotary pairs."""

    qkv: Panels
    out: Panels
    gate_up: Panels
    down: Panels
    input_norm: torch.Tensor
    post_norm: torch.Tensor
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None


@dataclass(slots=True)
class DenseWeights:
    """All weights. The head's panels are the blocks that `sampling` chooses from; `table` [vocabulary, hidden] is None
    when the embedding is the head."""

    layers: list[DenseLayer]
    norm: torch.Tensor
    head: Panels
    table: torch.Tensor | None

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """int64 [T] -> a new tensor [T, hidden]."""
        if self.table is None:
            return self.head.rows(tokens).contiguous()
        return F.embedding(tokens, self.table)


class DenseStaging:
    """A second set of weights, filled by Hugging Face names. What never arrives is taken over from `current`."""

    def __init__(
        self, shape: DenseShape, device: torch.device, dtype: torch.dtype, current: DenseWeights | None
    ) -> None:
        self._shape, self._device, self._dtype, self._current = shape, device, dtype, current
        self._new = self._allocate()
        self._missing = {info.name for info in shape.tensors("float32")}
        half = shape.head_dim // 2
        self._pairs = torch.arange(shape.head_dim).view(2, half).t().reshape(-1).to(device)

    def put(self, name: str, tensor: torch.Tensor) -> None:
        """One tensor by name; shape checked by the caller. KeyError for an unknown name."""
        region, permuted = self._region(self._new, name)
        tensor = tensor.to(self._device, self._dtype)
        if permuted:
            tensor = self._paired(tensor)
        if region.ndim == 3:  # panels: a weight's rows become columns, a bias stays a row
            width = region.shape[2]
            if len(tensor) % width:  # the vocabulary: the last block is not full
                tensor = F.pad(tensor, (0, 0, 0, width - len(tensor) % width))
            tensor = tensor.view(-1, 1, width) if tensor.ndim == 1 else tensor.view(-1, width, tensor.shape[1]).mT
        region.copy_(tensor)
        self._missing.discard(name)

    def complete(self) -> DenseWeights:
        """The new weights. RuntimeError when tensors are missing that `current` does not have either."""
        if self._missing and self._current is None:
            raise RuntimeError(f"{len(self._missing)} tensors never arrived, e.g. {min(self._missing)}")
        for name in sorted(self._missing):
            assert self._current is not None
            self._region(self._new, name)[0].copy_(self._region(self._current, name)[0])
        self._missing.clear()
        return self._new

    def _allocate(self) -> DenseWeights:
        shape = self._shape
        heads = gcd(shape.heads, shape.kv_heads)  # a panel holds whole heads and divides q, k and v
        per_panel = max(n for n in range(1, heads + 1) if heads % n == 0 and (n == 1 or n * shape.head_dim <= WIDEST))

        def panels(rows: int, columns: int, width: int, bias: bool) -> Panels:
            return Panels(rows, columns, width, bias=bias, device=self._device, dtype=self._dtype)

        def vector(size: int) -> torch.Tensor:
            return torch.empty(size, device=self._device, dtype=self._dtype)

        hidden, inner, hidden_width = shape.hidden, shape.intermediate, panel_width(shape.hidden)
        layers = [
            DenseLayer(
                qkv=panels(shape.q_size + 2 * shape.kv_size, hidden, per_panel * shape.head_dim, shape.qkv_bias),
                out=panels(hidden, shape.q_size, hidden_width, shape.out_bias),
                gate_up=panels(2 * inner, hidden, panel_width(inner), shape.mlp_bias),
                down=panels(hidden, inner, hidden_width, shape.mlp_bias),
                input_norm=vector(hidden),
                post_norm=vector(hidden),
                q_norm=vector(shape.head_dim) if shape.qk_norm else None,
                k_norm=vector(shape.head_dim) if shape.qk_norm else None,
            )
            for _ in range(shape.layers)
        ]
        head = panels(-(-shape.vocabulary // BLOCK) * BLOCK, hidden, BLOCK, False)
        table = None if shape.tied else torch.empty(shape.vocabulary, hidden, device=self._device, dtype=self._dtype)
        return DenseWeights(layers, vector(hidden), head, table)

    def _place(self, module: str) -> tuple[str, int, int, bool]:
        """Of a layer's projection: the fused matrix it lies in, its first row there, its rows, whether it rotates."""
        shape = self._shape
        return {
            "self_attn.q_proj": ("qkv", 0, shape.q_size, True),
            "self_attn.k_proj": ("qkv", shape.q_size, shape.kv_size, True),
            "self_attn.v_proj": ("qkv", shape.q_size + shape.kv_size, shape.kv_size, False),
            "self_attn.o_proj": ("out", 0, shape.hidden, False),
            "mlp.gate_proj": ("gate_up", 0, shape.intermediate, False),
            "mlp.up_proj": ("gate_up", shape.intermediate, shape.intermediate, False),
            "mlp.down_proj": ("down", 0, shape.hidden, False),
        }[module]

    def _region(self, weights: DenseWeights, name: str) -> tuple[torch.Tensor, bool]:
        """Where a tensor of this Hugging Face name lies in `weights` (a view in the stored layout), and whether its
        heads are permuted."""
        if name == "model.embed_tokens.weight":
            return (weights.head.data if weights.table is None else weights.table), False
        if name == "lm_head.weight":
            return weights.head.data, False
        if name == "model.norm.weight":
            return weights.norm, False
        _, _, index, rest = name.split(".", 3)
        layer = weights.layers[int(index)]
        vectors = {
            "input_layernorm.weight": layer.input_norm,
            "post_attention_layernorm.weight": layer.post_norm,
            "self_attn.q_norm.weight": layer.q_norm,
            "self_attn.k_norm.weight": layer.k_norm,
        }
        vector = vectors.get(rest)
        if vector is not None:
            return vector, rest.startswith("self_attn")
        module, _, kind = rest.rpartition(".")
        attribute, start, count, permuted = self._place(module)
        return getattr(layer, attribute).region(start, count, bias=kind == "bias"), permuted

    def _paired(self, tensor: torch.Tensor) -> torch.Tensor:
        """Rows of q or k with the two halves of each rotary pair side by side."""
        by_head = tensor.view(-1, self._shape.head_dim, *tensor.shape[1:])
        return by_head[:, self._pairs].reshape(tensor.shape)
