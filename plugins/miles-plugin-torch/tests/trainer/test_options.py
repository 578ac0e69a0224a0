"""Options: what is refused, and the learning rate by hand. Importing them imports no torch."""

from __future__ import annotations

import subprocess
import sys

import pytest
from miles_plugin_torch.trainer.optimizing import learning_rate
from miles_plugin_torch.trainer.options import TorchTrainerOptions
from pydantic import ValidationError

from miles_core import ModelCard, RecipeFacts, Sampling


def facts(**changed):
    card = ModelCard("m", "LlamaForCausalLM", 128, 61, 24, 3, 1000, (0,))
    known = {
        "group_size": 4, "groups_per_step": 2, "optimizer_steps": 1, "steps": 10, "sampling": Sampling(), "model": card,
    }  # fmt: skip
    return RecipeFacts(**{**known, **changed})


def test_options_and_plugin_import_no_torch():
    code = (
        "import sys, miles_plugin_torch.plugin as p, miles_plugin_torch.trainer.options;"
        "p.miles_trainers(); assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "cosine"}, "needs total_steps"),
        ({"warmup_steps": 5, "total_steps": 5}, "must be below total_steps"),
        ({"learning_rate": 0}, "greater than 0"),
        ({"train": {"last_layers": 0}}, "greater than 0"),
        ({"train": "half"}, "full"),
        ({"learning_rat": 1e-5}, "Extra inputs"),
    ],
)
def test_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        TorchTrainerOptions(**options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"train": {"last_layers": 4}}, "last_layers is 4, but the model has 3"),
        ({"schedule": "linear", "total_steps": 5}, "total_steps is 5, but the phase takes 10"),
        ({"optimizer_steps": 9}, "a batch has 8 trajectories"),
    ],
)
def test_contradictions_with_the_recipe(options, sentence):
    assert any(sentence in found for found in TorchTrainerOptions(**options).check(facts()))
    assert not list(TorchTrainerOptions(train={"last_layers": 3}).check(facts()))


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.25, 0.5, 0.75, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]),
        ("cosine", [0.25, 0.5, 0.75, 1.0, 1.0, 0.8535533905932737, 0.5, 0.14644660940672627, 0.0]),
    ],
)
def test_learning_rate(schedule, expected):
    options = TorchTrainerOptions(learning_rate=1.0, schedule=schedule, warmup_steps=4, total_steps=8)
    assert [learning_rate(options, step) for step in range(9)] == pytest.approx(expected, abs=1e-12)
