"""Log-probs of given tokens from hidden states, with the logits of a bounded number of positions in memory.

For a hidden state h, output matrix W [V, H] (and bias b), temperature t and target y, with z = (W h + b) / t:

    log p(y) = z_y - logsumexp(z)
    d log p(y) / dz = onehot(y) - softmax(z)

The forward pass goes over chunks of positions. When W needs a gradient and everything fits in one chunk, the
probabilities are kept for the backward pass; with more chunks they are computed a second time there. When W is frozen
nothing is computed twice: d log p(y) / dh = W^T (onehot(y) - softmax(z)) / t does not depend on what the loss is, so
the forward pass keeps this [M, H] instead.

Made for `backward()`: a weight that has a gradient already gets its share added to it there, which
`torch.autograd.grad` would not see.
"""

from __future__ import annotations

from typing import Any

import torch

Optional = torch.Tensor | None


def token_logprobs(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional,
    targets: torch.Tensor,
    temperature: torch.Tensor,
    chunk: int,
) -> torch.Tensor:
    """float32 [M] log-probs.

    hidden       [M, H], the type that the product is computed in
    weight       [V, H]; bias [V] or None
    targets      int64 [M]
    temperature  float32 [M], above 0
    chunk        most positions whose V logits are in memory at once
    """
    return _TokenLogProbs.apply(hidden, weight, bias, targets, temperature, chunk)  # type: ignore[no-any-return]


def _log_softmax_(
    hidden: torch.Tensor, weight: torch.Tensor, bias: Optional, temperature: torch.Tensor
) -> torch.Tensor:
    """float32 [m, V] log-softmax(logits / temperature); one buffer of that size at a time."""
    offset = None if bias is None else bias.to(hidden.dtype)
    logits = torch.nn.functional.linear(hidden, weight.to(hidden.dtype), offset)
    logits = logits.float()
    logits.div_(temperature[:, None])
    for rows in logits.split(64):  # the intermediate values of logsumexp are as large as its input
        rows.sub_(torch.logsumexp(rows, dim=-1, keepdim=True))
    return logits


def _minus_softmax_(logp: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """onehot(targets) - softmax, in the place of the log-softmax."""
    out = logp.exp_().neg_()
    out[torch.arange(len(targets), device=out.device), targets] += 1.0
    return out


class _TokenLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: Optional,
        targets: torch.Tensor,
        temperature: torch.Tensor,
        chunk: int,
    ) -> torch.Tensor:
        needs_hidden, needs_weight = ctx.needs_input_grad[:2]
        out = hidden.new_empty(len(targets), dtype=torch.float32)
        by_hidden = hidden.new_empty(hidden.shape) if needs_hidden and not needs_weight else None
        kept: torch.Tensor | None = None
        for first in range(0, len(targets), chunk):
            part = slice(first, first + chunk)
            logp = _log_softmax_(hidden[part], weight, bias, temperature[part])
            out[part] = logp.gather(1, targets[part, None])[:, 0]
            if by_hidden is not None:
                slope = _minus_softmax_(logp, targets[part]).div_(temperature[part, None])
                by_hidden[part] = slope.to(hidden.dtype) @ weight.to(hidden.dtype)
            elif needs_weight and len(targets) <= chunk:
                kept = _minus_softmax_(logp, targets[part])
        ctx.chunk = chunk
        ctx.frozen = by_hidden is not None
        if ctx.frozen:
            ctx.save_for_backward(by_hidden)
        elif needs_weight:
            ctx.save_for_backward(hidden, weight, bias, targets, temperature, kept)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        if ctx.frozen:
            (by_hidden,) = ctx.saved_tensors
            return by_hidden * grad[:, None].to(by_hidden.dtype), None, None, None, None, None
        hidden, weight, bias, targets, temperature, kept = ctx.saved_tensors
        grad_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        grad_bias = None if bias is None else torch.zeros_like(bias)
        # [V, H] is large: from the second micro-batch on it is added to where it belongs, without a copy in between.
        in_place = weight.is_leaf and weight.grad is not None
        grad_weight = weight.grad if in_place else torch.zeros_like(weight)
        for first in range(0, len(targets), ctx.chunk):
            part = slice(first, first + ctx.chunk)
            scale = (grad[part] / temperature[part])[:, None]
            if kept is not None:
                slope = kept.mul_(scale)
            else:
                logp = _log_softmax_(hidden[part], weight, bias, temperature[part])
                slope = _minus_softmax_(logp, targets[part]).mul_(scale)
            slope = slope.to(hidden.dtype)
            if grad_hidden is not None:
                grad_hidden[part] = slope @ weight.to(hidden.dtype)
            if slope.dtype == grad_weight.dtype:
                grad_weight.addmm_(slope.T, hidden[part])
            else:
                grad_weight += slope.T @ hidden[part]
            if grad_bias is not None:
                grad_bias += slope.sum(0)
        return grad_hidden, None if in_place else grad_weight, grad_bias, None, None, None
