"""One side of `step.py`: TRL's GRPOTrainer. Run as `step_trl.py SCENARIO TRAIN STEPS OUT` by it.

TRL's defaults are kept (loss `dapo`, clip 0.2/0.2, beta 0, group-std advantages, sampling at temperature 1, one
optimizer step a batch, AdamW fused) except:
- float32 instead of bf16: both sides compute the same, and bf16 is emulated on most CPUs;
- gradient_checkpointing as TRAIN says: its default True recomputes every layer and would flatter the other side's time;
- micro-batches of 8 (its default), gradient accumulation over 4, so that a step is 4 prompts x 8 completions;
- no saving, no reporting, constant learning rate, the dataset's order.
"""

from __future__ import annotations

import functools
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path

import step_shared as shared
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessor, LogitsProcessorList, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class Clock(TrainerCallback):
    """CPU and wall seconds from one step's end to the next's; the first step only warms up."""

    def __init__(self) -> None:
        self.marks: list[tuple[float, float]] = []

    def on_step_end(self, args, state, control, **kwargs):
        self.marks.append((time.process_time(), time.perf_counter()))


class Gradients(TrainerCallback):
    """Keeps the gradient of the first step, before the optimizer takes it."""

    def __init__(self) -> None:
        self.found: dict[str, torch.Tensor] = {}

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


class EndAt(LogitsProcessor):
    """Each row ends at its own length, and not before."""

    def __init__(self, lengths: list[int], end: int) -> None:
        self.lengths = torch.tensor(lengths)
        self.end = end

    def __call__(self, input_ids, scores):
        now = input_ids.shape[1] - shared.PROMPT_TOKENS + 1 >= self.lengths
        scores = scores.masked_fill(now[:, None], float("-inf"))
        scores[:, self.end] = torch.where(now, 0.0, float("-inf"))
        return scores


class Watched(GRPOTrainer):
    """Counts tokens and seconds of generation; may be given the completions."""

    given: list[list[int]] | None = None

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        if self.given is not None:
            return self.given, None
        self.prompt_lengths = sorted({len(ids) for ids in prompt_ids})
        before = time.process_time()
        completions, logprobs = super()._generate_single_turn(prompt_ids, *args, **kwargs)
        self.generation_cpu = time.process_time() - before
        self.lengths = [len(ids) for ids in completions]
        return completions, logprobs


def config(folder: str, new: int, natural: bool, steps: int, **changed) -> GRPOConfig:
    settings = {
        "output_dir": folder, "use_cpu": True, "bf16": False, "max_steps": steps, "learning_rate": shared.LEARNING_RATE,
        "lr_scheduler_type": "constant", "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": shared.PROMPTS * shared.GROUP // 8, "num_generations": shared.GROUP,
        "max_completion_length": new, "save_strategy": "no", "report_to": "none", "shuffle_dataset": False,
        "disable_tqdm": True, "gradient_checkpointing": False,
        "generation_kwargs": None if natural else {"min_new_tokens": new},
    }  # fmt: skip
    return GRPOConfig(**{**settings, **changed})


def load(train: str):
    model = AutoModelForCausalLM.from_pretrained(shared.model_folder(), dtype=torch.float32)
    if train == "last":
        model.requires_grad_(False)
        for part in (*model.model.layers[-shared.LAST_LAYERS :], model.model.norm):
            part.requires_grad_(True)
    return model, AutoTokenizer.from_pretrained(shared.model_folder())


def measure(scenario: str, train: str, steps: int) -> dict:
    model, tokenizer = load(train)
    work = shared.SCENARIOS[scenario]
    if work["natural"]:
        end = EndAt(shared.natural_lengths(), tokenizer.eos_token_id)
        model.generate = functools.partial(model.generate, logits_processor=LogitsProcessorList([end]))
    clock = Clock()
    rows = [{"prompt": shared.chat(text)} for text in shared.questions(shared.PROMPTS * steps)]
    with tempfile.TemporaryDirectory() as folder:
        trainer = Watched(
            model,
            reward_funcs=lambda completions, **_: [shared.reward(text) for text in completions],
            args=config(folder, **work, steps=steps, gradient_checkpointing=train == "checkpointed"),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            callbacks=[clock],
        )
        trainer.train()
    cpu, wall = zip(*clock.marks, strict=True)
    return {
        "cpu": [b - a for a, b in itertools.pairwise(cpu)],
        "wall": [b - a for a, b in itertools.pairwise(wall)],
        "prompt_lengths": trainer.prompt_lengths,
        "lengths": trainer.lengths,
        "split": {"generation": trainer.generation_cpu},
    }


def gradient() -> dict:
    """The gradient of one step on the injected completions and rewards, without clipping."""
    prompts, completions, rewards = shared.injected()
    model, tokenizer = load("full")
    gradients = Gradients()
    scores = iter(rewards.ravel().tolist())
    with tempfile.TemporaryDirectory() as folder:
        trainer = Watched(
            model,
            reward_funcs=lambda completions, **_: [next(scores) for _ in completions],
            args=config(
                folder, new=32, natural=True, steps=1, max_grad_norm=0.0, gradient_accumulation_steps=len(prompts)
            ),
            train_dataset=Dataset.from_list([{"prompt": str(i)} for i in range(len(prompts))]),
            processing_class=tokenizer,
            callbacks=[gradients],
        )
        trainer.given = completions.reshape(-1, completions.shape[-1]).tolist()
        trainer._tokenize_prompts = lambda texts: ([prompts[int(text)].tolist() for text in texts], None, {})
        trainer.train()
    return gradients.found


def main() -> None:
    scenario, train, steps, out = sys.argv[1:]
    torch.set_num_threads(shared.THREADS)
    if scenario == "gradient":
        torch.save(gradient(), out)
    else:
        Path(out).write_text(json.dumps(measure(scenario, train, int(steps))))


if __name__ == "__main__":
    main()
