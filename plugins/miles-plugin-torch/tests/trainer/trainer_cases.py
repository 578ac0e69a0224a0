"""Tiny models, minimal losses, random batches, and the plain computation that the trainer is compared with.

The plain computation shares nothing with the trainer: transformers' own attention, one sequence at a time, padding and
packing unheard of, in float64.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from miles_plugin_torch.trainer.options import TorchTrainerOptions
from miles_plugin_torch.trainer.torch_trainer import TorchTrainer
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

from miles_core import (
    BuildContext,
    ComponentRef,
    LossInputs,
    ModelCard,
    ModelFiles,
    Row,
    Sequence,
    Span,
    TokenTerms,
)

VOCABULARY = 61


def save_tiny(kind: str, folder: Path, seed: int = 0) -> ModelFiles:
    common = {
        "vocab_size": VOCABULARY,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 256,
        "initializer_range": 0.25,
    }
    torch.manual_seed(seed)
    if kind == "llama":
        config = LlamaConfig(**common, tie_word_embeddings=True)
    else:
        config = Qwen3Config(**common, tie_word_embeddings=False)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    count = sum(p.numel() for p in model.parameters())
    card = ModelCard(kind, type(model).__name__, 256, VOCABULARY, 24, 3, count, (0,))
    return ModelFiles(folder, card)


class PolicyCase:
    """-w min(r A, clip(r, 0.8, 1.2) A), each sampled token weighted 1 / (sampled tokens of the step)."""

    needs_rollout_logprobs = True
    needs_reference = False

    def __init__(self, options, context):
        pass

    def weights(self, rows):
        count = max(1, sum(row.sequence.sampled_count for row in rows))
        return [row.sequence.sampled.astype(np.float32) / np.float32(count) for row in rows]

    def per_token(self, inputs: LossInputs) -> TokenTerms:
        ratio = (inputs.logprobs - inputs.old_logprobs).exp()
        a = inputs.advantages
        values = -torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a) * inputs.correction
        return TokenTerms(values, means={"ratio": ratio.detach()}, maxima={"ratio_max": ratio.detach()})


class PenaltyCase(PolicyCase):
    """The same plus 0.1 (log p - log p_ref)^2 / 2."""

    needs_reference = True

    def per_token(self, inputs):
        terms = super().per_token(inputs)
        distance = (inputs.logprobs - inputs.reference_logprobs).square() / 2
        return TokenTerms(terms.values + 0.1 * distance, means={"distance": distance.detach()})


class WholeSequenceCase(PolicyCase):
    """A ratio for the whole trajectory: wrong when a trajectory is torn."""

    def per_token(self, inputs):
        d = inputs.logprobs - inputs.old_logprobs
        count = int(inputs.trajectory.max()) + 1
        sums = torch.zeros(count).index_add(0, inputs.trajectory, inputs.logprobs)
        return TokenTerms(-(d.exp() * inputs.advantages) * sums.detach()[inputs.trajectory])


class SupervisedCase:
    needs_rollout_logprobs = False
    needs_reference = False

    def __init__(self, options, context):
        pass

    def weights(self, rows):
        return [row.sequence.sampled.astype(np.float32) / np.float32(len(rows)) for row in rows]

    def per_token(self, inputs):
        return TokenTerms(-inputs.logprobs)


class HalvingCase:
    """Correction: the ratio, at most 1.5."""

    def __init__(self, options, context):
        pass

    def correct(self, log_ratio, row):
        ratio = log_ratio.exp()
        return TokenTerms(ratio.clamp(0.0, 1.5), means={"clipped": (ratio > 1.5).float()})


class KeptTransport:
    """Keeps what was sent, by version."""

    sent: dict = {}  # noqa: RUF012

    def __init__(self, options, context):
        pass

    def send(self, version, tensors):
        self.sent[version] = [(item.info, item.data.copy()) for item in tensors]
        return version

    def release(self, version):
        self.sent.pop(version, None)


def ref(kind: str, cls: type) -> ComponentRef:
    return ComponentRef(kind, cls.__name__, f"trainer_cases:{cls.__name__}", "miles_core:NoOptions", {}, "", "")


def make_trainer(files, loss=PolicyCase, correction=HalvingCase, precision=None, **options) -> TorchTrainer:
    parts = {"loss": ref("loss", loss), "transport": ref("transport", KeptTransport)}
    if precision is not None:
        parts["precision"] = precision
    if correction is not None:
        parts["correction"] = ref("correction", correction)
    options = {"max_grad_norm": None, "learning_rate": 0.01, **options}
    return TorchTrainer(TorchTrainerOptions(**options), BuildContext(seed=1, name="trainer", model=files, parts=parts))


def make_sequence(
    tokens, sampled, rng, *, temperature: float = 1.0, demonstration: bool = False, logprobs=None
) -> Sequence:
    tokens = np.asarray(tokens, dtype=np.int32)
    sampled = np.asarray(sampled, dtype=bool)
    if demonstration:
        return Sequence(tokens, sampled, None, np.zeros(len(tokens), dtype=np.int32))
    if logprobs is None:
        logprobs = np.where(sampled, -rng.uniform(2.0, 6.0, len(tokens)), 0.0)
    spans = []
    edges = np.flatnonzero(np.diff(np.concatenate([[0], sampled.astype(np.int8), [0]])))
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        spans.append(Span(int(start), int(stop), 1, "engine-0", "r", temperature=temperature))
    return Sequence(tokens, sampled, logprobs.astype(np.float32), sampled.astype(np.int32), tuple(spans))


def make_row(sequence: Sequence, trajectory: str, group: str, rng) -> Row:
    return Row(sequence, rng.normal(size=len(sequence)).astype(np.float32), trajectory, group)


def random_rows(rng, *, groups=3, size=4, prompt=9, longest=12, temperature=1.0, demonstration=False) -> list[Row]:
    """Ragged groups with a common prompt; completions of different lengths, some with a gap that was not sampled."""
    rows = []
    for g in range(groups):
        head = rng.integers(0, VOCABULARY, prompt)
        for i in range(size):
            n = int(rng.integers(1, longest + 1))
            sampled = np.concatenate([np.zeros(prompt, bool), rng.random(n) < 0.8])
            sampled[prompt] = True
            tokens = np.concatenate([head, rng.integers(0, VOCABULARY, n)])
            sequence = make_sequence(tokens, sampled, rng, temperature=temperature, demonstration=demonstration)
            rows.append(make_row(sequence, f"g{g}t{i}", f"g{g}", rng))
    return rows


# The plain computation


def plain_model(files, dtype=torch.float64, attention="eager"):
    return AutoModelForCausalLM.from_pretrained(files.path, dtype=dtype, attn_implementation=attention).eval()


def plain_logprobs(model, sequence: Sequence) -> torch.Tensor:
    """[n] log-probs of the sampled tokens, one sequence at a time; 0 elsewhere."""
    tokens = torch.from_numpy(sequence.tokens.astype(np.int64))
    temperature = torch.ones(len(tokens), dtype=torch.float64)
    for span in sequence.spans:
        temperature[span.start : span.stop] = span.temperature or 1.0
    logits = model(input_ids=tokens[None]).logits[0, :-1] / temperature[1:, None].to(model.dtype)
    chosen = logits.log_softmax(-1).gather(1, tokens[1:, None])[:, 0]
    full = torch.cat([torch.zeros(1, dtype=chosen.dtype), chosen])
    return torch.where(torch.from_numpy(sequence.sampled), full, 0.0)


def plain_policy_gradient(files, rows, correction=True) -> dict[str, torch.Tensor]:
    """The gradient of PolicyCase with HalvingCase, old = current, by name."""
    model = plain_model(files)
    count = sum(row.sequence.sampled_count for row in rows)
    for row in rows:
        if not row.sequence.sampled.any():
            continue
        lp = plain_logprobs(model, row.sequence)[torch.from_numpy(row.sequence.sampled)]
        a = torch.from_numpy(row.advantages[row.sequence.sampled]).double()
        rollout = torch.from_numpy(row.sequence.logprobs[row.sequence.sampled]).double()
        weight = (lp.detach() - rollout).exp().clamp(0, 1.5) if correction else 1.0
        r = (lp - lp.detach()).exp()
        loss = -(torch.minimum(r * a, r.clamp(0.8, 1.2) * a) * weight).sum() / count
        loss.backward()
    return {name: p.grad for name, p in model.named_parameters()}


def trainer_gradient(trainer: TorchTrainer, rows, loss=None) -> dict[str, torch.Tensor]:
    """What the trainer's step would hand to AdamW."""
    from miles_plugin_torch.trainer.gradient import accumulate, prepare
    from miles_plugin_torch.trainer.metrics import Averages

    loss = loss or trainer._loss
    accumulate(trainer._policy, prepare(tuple(rows), loss), loss, trainer._correction, trainer._options, Averages())
    found = {name: None if p.grad is None else p.grad.clone() for name, p in trainer._trained.items()}
    trainer._optimizer.drop_gradients()
    return found


def relative_difference(found: dict, expected: dict) -> float:
    """|found - expected| / |expected| over all tensors together."""
    a = torch.cat([found[name].double().flatten() for name in expected])
    b = torch.cat([expected[name].double().flatten() for name in expected])
    return float((a - b).norm() / b.norm())


def weights_of(trainer: TorchTrainer) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in trainer._model.named_parameters()}
