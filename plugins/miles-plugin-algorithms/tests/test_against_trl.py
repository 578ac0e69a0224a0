"""Advantages, loss and gradient against TRL's GRPOTrainer (1.16.0, extra `compare`), on the same completions.

The real trainer is used, with a tiny model in float64: completions and rewards are injected through its `rollout_func`
and reward function, its own code makes advantages and loss, and the gradient is that of the model's parameters. Our
side computes log-probs one sequence at a time, without padding.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from miles_plugin_algorithms.correction import ClipOrPop, TruncatedImportance
from miles_plugin_algorithms.correction_options import PopOptions, TisOptions
from miles_plugin_algorithms.grpo import Grpo, GrpoOptions
from miles_plugin_algorithms.policy import PolicyLoss
from miles_plugin_algorithms.policy_options import PolicyOptions

from miles_core import Group, LossInputs, Row, Sequence, Task, Trajectory

trl = pytest.importorskip("trl", reason="the comparison with TRL needs the extra `compare`")
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # transformers', about options that TRL sets
    pytest.mark.filterwarnings("ignore:You are using 'rollout_func':UserWarning"),
]

PROMPT = [1, 2, 3]
COMPLETIONS = [[4, 5, 12], [6, 12], [7, 8, 9, 12], [12], [4, 4, 4, 4], [5, 12], [6, 7, 12], [8, 12]]  # 12 ends
REWARDS = [1.0, 0.0, 0.0, 0.0, 0.5, 0.25, 1.0, 0.0]
GROUP = 4
LONGEST = 4
ENGINE_LOGPROB = -3.0


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    pytest.importorskip("datasets")
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(12)} | {"<eos>": 12, "<pad>": 13}, unk_token="t0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=14,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            initializer_range=0.4,
            bos_token_id=None,
            eos_token_id=12,
            pad_token_id=13,
        )
    )
    result = trl.GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: REWARDS,
        args=trl.GRPOConfig(
            output_dir=str(tmp_path_factory.mktemp("trl")),
            use_cpu=True,
            bf16=False,
            per_device_train_batch_size=len(COMPLETIONS),
            num_generations=GROUP,
            max_completion_length=LONGEST,
            report_to=[],
            logging_strategy="no",
            save_strategy="no",
        ),
        train_dataset=Dataset.from_list([{"prompt": "t1 t2 t3"}] * len(COMPLETIONS)),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>", pad_token="<pad>"),
        rollout_func=lambda prompts, _: {
            "prompt_ids": [PROMPT] * len(COMPLETIONS),
            "completion_ids": COMPLETIONS,
            "logprobs": [[ENGINE_LOGPROB] * len(ids) for ids in COMPLETIONS],
        },
    )
    result.model.double().train()
    result.current_gradient_accumulation_steps = 1
    return result


@pytest.fixture
def plain(trainer):
    """The trainer with its settings as they were after the test."""
    before, arguments = dict(vars(trainer)), dict(vars(trainer.args))
    yield trainer
    vars(trainer).update(before)
    vars(trainer.args).update(arguments)


def generated(trainer) -> dict[str, torch.Tensor]:
    return trainer._generate_and_score_completions([{"prompt": "t1 t2 t3"}] * len(COMPLETIONS))


def our_groups() -> list[Group]:
    def trajectory(place: int) -> Trajectory:
        ids = [*PROMPT, *COMPLETIONS[place]]
        row = Sequence(
            tokens=np.array(ids, dtype=np.int32),
            sampled=np.arange(len(ids)) >= len(PROMPT),
            logprobs=None,
            versions=np.zeros(len(ids), dtype=np.int32),
        )
        return Trajectory(f"t{place}", "task", place % GROUP, (row,), reward=REWARDS[place])

    starts = range(0, len(COMPLETIONS), GROUP)
    task = Task("task", "t1 t2 t3")
    return [
        Group(task, start // GROUP, 0, tuple(trajectory(i) for i in range(start, start + GROUP))) for start in starts
    ]


def our_rows(advantages: dict[str, tuple[np.ndarray, ...]]) -> list[Row]:
    return [
        Row(trajectory.sequences[0], advantages[trajectory.id][0], trajectory.id, group.id)
        for group in our_groups()
        for trajectory in group.trajectories
    ]


def our_logprobs(model: torch.nn.Module) -> torch.Tensor:
    """[T]: one sequence at a time, no padding."""
    parts = []
    for completion in COMPLETIONS:
        ids = torch.tensor([[*PROMPT, *completion]])
        logits = model(input_ids=ids).logits[0, len(PROMPT) - 1 : -1]
        parts.append(logits.log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0])
    return torch.cat(parts)


def padded(flat: torch.Tensor) -> torch.Tensor:
    """[T] to TRL's [B, longest], zeros as padding."""
    parts = flat.split([len(c) for c in COMPLETIONS])
    return torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True)


@pytest.mark.parametrize(("theirs", "ours"), [("group", "std"), ("batch", "batch-std"), ("none", "none")])
def test_advantages(theirs, ours, plain, context):
    plain.scale_rewards = theirs
    expected = generated(plain)["advantages"]
    got = Grpo(GrpoOptions(scale=ours, ddof=1, epsilon=1e-4), context).compute(our_groups())
    values = [float(got[f"t{i}"][0][len(PROMPT)]) for i in range(len(COMPLETIONS))]
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("theirs", "bounds", "correction"),
    [
        ("token_truncate", (0.0, 2.0), TruncatedImportance(TisOptions(), None)),
        ("token_truncate", (0.8, 1.2), TruncatedImportance(TisOptions(bounds=(0.8, 1.2)), None)),
        ("token_mask", (0.5, 5.0), ClipOrPop(PopOptions(), None)),
    ],
)
def test_importance_weights(theirs, bounds, correction, plain):
    plain.use_vllm = plain.vllm_importance_sampling_correction = True
    plain._last_loaded_step = plain.state.global_step  # or it would send weights to a server that is not there
    plain.vllm_importance_sampling_mode = theirs
    plain.vllm_importance_sampling_clip_min, plain.vllm_importance_sampling_clip_max = bounds
    expected = generated(plain)["importance_sampling_ratio"]
    with torch.no_grad():
        log_ratio = our_logprobs(plain.model) - ENGINE_LOGPROB
    terms = correction.correct(log_ratio, torch.zeros(len(log_ratio), dtype=torch.int64))
    sampled = padded(torch.ones_like(log_ratio)) > 0
    np.testing.assert_allclose(padded(terms.values)[sampled], expected[sampled], rtol=1e-6)
    assert 0 < float(terms.means["clipped"].mean()) < 1


CASES = {
    "grpo": ({"loss_type": "grpo"}, {"reduce": "sequence-mean"}),
    "dapo": ({"loss_type": "dapo", "epsilon_high": 0.28}, {"reduce": "token-mean", "clip": [0.2, 0.28]}),
    "bnpo": ({"loss_type": "bnpo"}, {"reduce": "token-mean"}),
    "dr_grpo": ({"loss_type": "dr_grpo"}, {"reduce": "constant-length", "length": LONGEST}),
    "kl": (
        {"loss_type": "grpo", "beta": 0.04, "use_bias_correction_kl": False},
        {"kl": {"estimator": "k3", "weight": 0.04}},
    ),
    "unbiased kl": (  # TRL's default wherever beta is set
        {"loss_type": "grpo", "beta": 0.04},
        {"kl": {"estimator": "k3", "weight": 0.04, "unbiased": True}},
    ),
    "dual clip": ({"loss_type": "grpo", "delta": 1.5}, {"dual_clip": 1.5}),
    "gspo": ({"loss_type": "grpo", "importance_sampling_level": "sequence"}, {"level": "sequence"}),
    "truncated importance": ({"loss_type": "dapo", "use_vllm": True}, {"reduce": "token-mean"}),
    "everything": (
        {"loss_type": "dr_grpo", "beta": 0.1, "epsilon_high": 0.28, "delta": 2.0, "use_vllm": True},
        {
            "reduce": "constant-length",
            "length": LONGEST,
            "clip": [0.2, 0.28],
            "dual_clip": 2.0,
            "kl": {"estimator": "k3", "weight": 0.1, "unbiased": True},
        },
    ),
}


def streams(model: torch.nn.Module) -> SimpleNamespace:
    """What both sides are given beside the model: old and reference log-probs near its own, importance weights."""
    generator = torch.Generator().manual_seed(11)

    def near(spread: float) -> torch.Tensor:
        with torch.no_grad():
            own = our_logprobs(model)
        return own + spread * torch.randn(own.shape, dtype=own.dtype, generator=generator)

    old = near(0.5)
    correction = torch.rand(old.shape, dtype=old.dtype, generator=generator) * 2
    return SimpleNamespace(old=old, reference=near(0.3), correction=correction)


def their_loss(trainer, batch: dict[str, torch.Tensor], given: SimpleNamespace) -> torch.Tensor:
    inputs = {**batch, "advantages": batch["advantages"].double()}
    inputs["old_per_token_logps"] = padded(given.old)
    inputs["ref_per_token_logps"] = padded(given.reference)
    inputs["importance_sampling_ratio"] = padded(given.correction)
    return trainer._compute_loss(trainer.model, inputs)


def our_loss(model, options: PolicyOptions, given: SimpleNamespace, context) -> tuple[torch.Tensor, dict]:
    loss = PolicyLoss(options, context)
    rows = our_rows(Grpo(GrpoOptions(epsilon=1e-4), context).compute(our_groups()))
    counts = torch.tensor([row.sequence.sampled_count for row in rows])
    places = torch.repeat_interleave(torch.arange(len(rows)), counts)
    sampled = [row.sequence.sampled for row in rows]
    terms = loss.per_token(
        LossInputs(
            logprobs=our_logprobs(model),
            old_logprobs=given.old,
            rollout_logprobs=None,
            reference_logprobs=given.reference,
            advantages=torch.tensor(np.concatenate([r.advantages[s] for r, s in zip(rows, sampled, strict=True)])),
            correction=given.correction,
            row=places,
            trajectory=places,
        )
    )
    weights = np.concatenate([w[s] for w, s in zip(loss.weights(rows), sampled, strict=True)])
    return (torch.tensor(weights) * terms.values).sum(), terms.means


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient(case, plain, context):
    theirs, ours = CASES[case]
    batch = generated(plain)  # with TRL's defaults; what a case changes is read by the loss
    for name, value in theirs.items():
        setattr(plain if hasattr(plain, name) else plain.args, name, value)
    model = plain.model
    given = streams(model)
    if not plain.use_vllm:
        given.correction = torch.ones_like(given.correction)
    expected = their_loss(plain, batch, given)
    got, metrics = our_loss(model, PolicyOptions(**ours), given, context)
    assert got.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-7)
    parameters = [p for p in model.parameters() if p.requires_grad]
    want = torch.cat([g.flatten() for g in torch.autograd.grad(expected, parameters)])
    have = torch.cat([g.flatten() for g in torch.autograd.grad(got, parameters)])
    assert want.norm() > 1e-3
    assert float((have - want).norm() / want.norm()) < 1e-5
    assert metrics["clip_fraction"].any(), "the case clips nothing, so it does not test the clip"
    if plain.importance_sampling_level == "token":
        clipped = plain._metrics["train"]["clip_ratio/region_mean"][-1]
        assert float(metrics["clip_fraction"].mean()) == pytest.approx(clipped, abs=1e-6)
