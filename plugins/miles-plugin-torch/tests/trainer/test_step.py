"""Whole steps against a hand-written loop with torch's AdamW, in float64, one sequence at a time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from miles_plugin_torch.trainer.minibatches import minibatches
from trainer_cases import (
    PenaltyCase,
    PolicyCase,
    SupervisedCase,
    make_row,
    make_sequence,
    make_trainer,
    plain_logprobs,
    plain_model,
    random_rows,
    save_tiny,
    weights_of,
)

from miles_core import Batch, RunError

# With the usual epsilon a first step moves a weight by the learning rate times the sign of its gradient, and where the
# gradient is rounding noise so is its sign. A larger epsilon makes the weights a smooth function of the gradients.
ADAMW = {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}
SAME = {"learning_rate": 0.01, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}
CLOSE = 1e-5


def split(rows, optimizer_steps):
    """Whole groups: 3 groups of 4 make 8 and 4 rows, or 4 each."""
    edges = {1: [0, len(rows)], 2: [0, 8, 12], 3: [0, 4, 8, 12]}[optimizer_steps]
    return [rows[a:b] for a, b in itertools.pairwise(edges)]


def hand_loop(files, batches, *, optimizer_steps=1, max_norm=None, penalty=False, last_only=False):
    """The weights after the batches, and the gradient norms before clipping."""
    model, initial = plain_model(files), plain_model(files)
    if last_only:
        model.requires_grad_(False)
        model.model.layers[-1].requires_grad_(True)
        model.model.norm.requires_grad_(True)
    adamw = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], **ADAMW)
    norms = []
    for rows in batches:
        with torch.no_grad():
            old = {id(row): plain_logprobs(model, row.sequence) for row in rows}
            reference = {id(row): plain_logprobs(initial, row.sequence) for row in rows}
        for part in split(rows, optimizer_steps):
            adamw.zero_grad()
            count = sum(row.sequence.sampled_count for row in part)
            for row in part:
                mask = torch.from_numpy(row.sequence.sampled)
                a = torch.from_numpy(row.advantages).double()[mask]
                rollout = torch.from_numpy(row.sequence.logprobs).double()[mask]
                lp = plain_logprobs(model, row.sequence)[mask]
                r = (lp - old[id(row)][mask]).exp()
                w = (old[id(row)][mask] - rollout).exp().clamp(0, 1.5)
                values = -torch.minimum(r * a, r.clamp(0.8, 1.2) * a) * w
                if penalty:
                    values = values + 0.1 * (lp - reference[id(row)][mask]).square() / 2
                (values.sum() / count).backward()
            norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm or float("inf"))))
            adamw.step()
    return {name: p.detach() for name, p in model.named_parameters()}, norms


def largest_difference(trainer, expected):
    """In weights of magnitude 0.3, of which most moved by 0.01 to 0.02."""
    found = weights_of(trainer)
    return max(float((found[name].double() - expected[name]).abs().max()) for name in expected)


def batches_of(seed, count=2, **shape):
    rng = np.random.default_rng(seed)
    return [random_rows(rng, **shape) for _ in range(count)]


@pytest.mark.parametrize("optimizer_steps", [1, 2, 3])
def test_optimizer_steps(tiny, optimizer_steps):
    batches = batches_of(1, groups=3)
    trainer = make_trainer(tiny, optimizer_steps=optimizer_steps, max_grad_norm=0.5, **SAME)
    reports = [trainer.step(Batch(i, tuple(rows))).metrics for i, rows in enumerate(batches)]
    expected, norms = hand_loop(tiny, batches, optimizer_steps=optimizer_steps, max_norm=0.5)
    assert largest_difference(trainer, expected) < CLOSE
    assert reports[0]["trainer/grad_norm"] == pytest.approx(np.mean(norms[:optimizer_steps]), rel=1e-5)
    assert reports[0]["trainer/optimizer_steps"] == optimizer_steps


def test_reference_is_the_weights_at_the_start(tiny):
    batches = batches_of(2, groups=2)
    trainer = make_trainer(tiny, loss=PenaltyCase, **SAME)
    reports = [trainer.step(Batch(i, tuple(rows))).metrics for i, rows in enumerate(batches)]
    expected, _ = hand_loop(tiny, batches, penalty=True)
    assert largest_difference(trainer, expected) < CLOSE
    assert reports[0]["loss/distance"] == pytest.approx(0.0, abs=1e-9)
    assert reports[1]["loss/distance"] > 1e-5


def test_last_layers_leave_the_rest_alone(tiny):
    batches = batches_of(3)
    trainer = make_trainer(tiny, train={"last_layers": 1}, **SAME)
    before = weights_of(trainer)
    for i, rows in enumerate(batches):
        trainer.step(Batch(i, tuple(rows)))
    expected, _ = hand_loop(tiny, batches, last_only=True)
    assert largest_difference(trainer, expected) < CLOSE
    after = weights_of(trainer)
    assert all(torch.equal(before[n], after[n]) for n in before if ".layers.0." in n or "embed" in n or "lm_head" in n)
    assert trainer.facts().trainable < trainer.facts().parameters


def test_the_same_inputs_give_bitwise_the_same_weights(tiny):
    batches = batches_of(4)
    first, second = make_trainer(tiny), make_trainer(tiny)
    for i, rows in enumerate(batches):
        assert first.step(Batch(i, tuple(rows))).metrics == second.step(Batch(i, tuple(rows))).metrics
    assert all(torch.equal(a, b) for a, b in zip(weights_of(first).values(), weights_of(second).values(), strict=True))


def test_metrics_of_mismatch(llama):
    """Rollout log-probs that are off by a known factor, without a correction."""
    rng = np.random.default_rng(5)
    rows = random_rows(rng, groups=1, size=2)
    model = plain_model(llama)
    shifted = []
    for row, shift in zip(rows, (0.1, -0.2), strict=True):
        with torch.no_grad():
            own = plain_logprobs(model, row.sequence).numpy()
        logprobs = np.where(row.sequence.sampled, np.minimum(own - shift, 0), 0)
        sequence = make_sequence(row.sequence.tokens, row.sequence.sampled, rng, logprobs=logprobs)
        shifted.append((make_row(sequence, row.trajectory, row.group, rng), np.exp(own - logprobs)[sequence.sampled]))
    ratios = np.concatenate([r for _, r in shifted])
    metrics = make_trainer(llama, correction=None).step(Batch(0, tuple(row for row, _ in shifted))).metrics
    assert metrics["correction/ratio_mean"] == pytest.approx(ratios.mean(), rel=1e-5)
    assert metrics["correction/ratio_max"] == pytest.approx(ratios.max(), rel=1e-5)
    assert metrics["correction/mismatch"] == pytest.approx(np.abs(ratios - 1).mean(), rel=1e-4)
    assert metrics["trainer/tokens"] == len(ratios)
    assert metrics["loss/ratio"] == 1.0


def test_metrics_do_not_depend_on_micro_batches(llama):
    rows = random_rows(np.random.default_rng(6))
    one = make_trainer(llama, micro_tokens=10).step(Batch(0, tuple(rows))).metrics
    all_ = make_trainer(llama, micro_tokens=10_000).step(Batch(0, tuple(rows))).metrics
    for name in ("loss/total", "loss/ratio_max", "correction/clipped", "correction/mismatch", "trainer/grad_norm"):
        assert one[name] == pytest.approx(all_[name], rel=1e-5)
    assert one["trainer/micro_batches"] > all_["trainer/micro_batches"] == 1
    assert all_["trainer/shared_tokens_saved"] >= 3 * 3 * 9


def test_all_weights_zero_is_a_step_with_a_zero_gradient(llama):
    """Equal to computing the rows: AdamW's momentum still moves the weights."""

    def silent(row):
        return make_row(
            make_sequence(row.sequence.tokens, np.zeros(len(row.sequence)), rng), row.trajectory, row.group, rng
        )

    rng = np.random.default_rng(7)
    rows = random_rows(rng, groups=1)
    trainer = make_trainer(llama)
    trainer.step(Batch(0, tuple(rows)))
    before = weights_of(trainer)
    metrics = trainer.step(Batch(1, tuple(silent(row) for row in rows))).metrics
    assert metrics["trainer/grad_norm"] == 0 and metrics["trainer/skipped_rows"] == len(rows)
    assert any(not torch.equal(a, b) for a, b in zip(before.values(), weights_of(trainer).values(), strict=True))


class TestBadNumbers:
    def broken_rows(self, seed=8):
        return random_rows(np.random.default_rng(seed), groups=2, size=2)

    def test_a_log_prob_that_is_not_a_number_names_the_trajectory(self, tmp_path):
        """One token's embedding is not a number, and one trajectory has that token in its prompt."""
        trainer = make_trainer(save_tiny("qwen3", tmp_path))
        token, rng = 60, np.random.default_rng(8)
        with torch.no_grad():
            trainer._model.get_input_embeddings().weight[token] = float("nan")
        rows = []
        for name in ("t0", "t1", "the-bad-one", "t3"):
            tokens = rng.integers(0, token, 14)
            if name == "the-bad-one":
                tokens[9] = token
            rows.append(make_row(make_sequence(tokens, np.arange(14) >= 10, rng), name, "g", rng))
        before = weights_of(trainer)
        with pytest.raises(RunError, match=r"log-prob of token 10 of trajectory 'the-bad-one' is nan") as caught:
            trainer.step(Batch(5, tuple(rows)))
        assert "step 5" in str(caught.value)
        after = weights_of(trainer)
        assert all(torch.equal(before[n].nan_to_num(), after[n].nan_to_num()) for n in before)

    def test_a_loss_that_is_infinite_names_the_trajectory_and_leaves_the_weights(self, llama):
        trainer = make_trainer(llama)
        rows = self.broken_rows()

        class Infinite(PolicyCase):
            def per_token(self, inputs):
                terms = super().per_token(inputs)
                return type(terms)(terms.values / torch.where(inputs.row == 2, 0.0, 1.0))

        trainer._loss = Infinite(None, None)
        before = weights_of(trainer)
        with pytest.raises(RunError, match=r"loss of token .* of trajectory 'g1t0' is -?inf"):
            trainer.step(Batch(0, tuple(rows)))
        assert all(torch.equal(a, b) for a, b in zip(before.values(), weights_of(trainer).values(), strict=True))
        trainer._loss = PolicyCase(None, None)
        fresh = make_trainer(llama)
        assert trainer.step(Batch(0, tuple(rows))).metrics == fresh.step(Batch(0, tuple(rows))).metrics

    def test_a_gradient_norm_that_overflows(self, llama):
        trainer = make_trainer(llama)

        class Huge(PolicyCase):
            def per_token(self, inputs):
                terms = super().per_token(inputs)
                return type(terms)(inputs.logprobs * 1e38)

        trainer._loss = Huge(None, None)
        before = weights_of(trainer)
        with pytest.raises(RunError, match="gradient norm"):
            trainer.step(Batch(0, tuple(self.broken_rows())))
        assert all(torch.equal(a, b) for a, b in zip(before.values(), weights_of(trainer).values(), strict=True))

    def test_after_a_failure_between_optimizer_steps_only_load_helps(self, llama, tmp_path):
        trainer = make_trainer(llama, optimizer_steps=2)
        trainer.save(tmp_path)
        calls = []

        class SecondFails(PolicyCase):
            def per_token(self, inputs):
                calls.append(1)
                terms = super().per_token(inputs)
                return type(terms)(terms.values * (1.0 if len(calls) == 1 else float("nan")))

        trainer._loss = SecondFails(None, None)
        with pytest.raises(RunError, match="loss of token"):
            trainer.step(Batch(0, tuple(self.broken_rows())))
        for use in (lambda: trainer.send(2), lambda: trainer.score([]), lambda: trainer.save(tmp_path)):
            with pytest.raises(RunError, match="in the middle of a step"):
                use()
        trainer.load(tmp_path)
        assert trainer.score([]) == []


def test_what_the_loss_needs(llama):
    demonstrations = random_rows(np.random.default_rng(9), groups=1, demonstration=True)
    with pytest.raises(RunError, match="trajectory 'g0t0' has none"):
        make_trainer(llama).step(Batch(0, tuple(demonstrations)))
    metrics = make_trainer(llama, loss=SupervisedCase).step(Batch(0, tuple(demonstrations))).metrics
    assert not any(name.startswith("correction/") for name in metrics)


def test_a_sampled_first_token_has_no_log_prob(llama):
    rng = np.random.default_rng(10)
    row = make_row(make_sequence([1, 2, 3], [True, True, False], rng), "first", "g", rng)
    with pytest.raises(RunError, match=r"'first'.*nothing precedes"):
        make_trainer(llama).step(Batch(0, (row,)))


class TestMinibatches:
    def rows(self, groups, size):
        rng = np.random.default_rng(11)
        return random_rows(rng, groups=groups, size=size)

    def test_groups_stay_together(self):
        parts = minibatches(self.rows(5, 3), 2)
        assert [sorted({r.group for r in part}) for part in parts] == [["g0", "g1", "g2"], ["g3", "g4"]]

    def test_else_trajectories(self):
        rows = [make_row(r.sequence, f"t{i // 2}", r.group, np.random.default_rng(0))
                for i, r in enumerate(self.rows(1, 8))]  # fmt: skip
        parts = minibatches(rows, 3)
        assert [sorted({r.trajectory for r in part}) for part in parts] == [["t0", "t1"], ["t2"], ["t3"]]
        assert sum(len(part) for part in parts) == 8

    def test_too_few(self):
        with pytest.raises(RunError, match="3 optimizer steps need 3 trajectories, the batch has 2"):
            minibatches(self.rows(1, 2), 3)
