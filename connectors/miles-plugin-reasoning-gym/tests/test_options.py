"""What a recipe may say, with reasoning-gym itself as the judge."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from miles_plugin_reasoning_gym.options import DataOptions, RewardOptions
from pydantic import ValidationError


def test_a_list_of_names_and_a_mixture() -> None:
    assert DataOptions(tasks=["gcd", "lcm"]) == DataOptions(tasks={"gcd": {}, "lcm": {"weight": 1.0}})  # type: ignore
    mixture = DataOptions.model_validate(
        {"tasks": {"gcd": None, "chain_sum": {"weight": 3, "config": {"max_terms": 2}}}}
    )
    assert mixture.tasks["chain_sum"].config == {"max_terms": 2}
    assert DataOptions.model_validate(mixture.model_dump(mode="json")) == mixture


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tasks": ["chain_sun"]}, "no generator 'chain_sun', the nearest is 'chain_sum'"),
        ({"tasks": ["composite"]}, "no generator 'composite'"),
        ({"tasks": ["gcd", "gcd"]}, "named twice: gcd"),
        ({"tasks": []}, "at least 1"),
        ({"tasks": {"chain_sum": {"config": {"min_term": 1}}}}, "no option 'min_term', the nearest is 'min_terms'"),
        ({"tasks": {"chain_sum": {"config": {"min_terms": 9}}}}, "max_terms must be >= min_terms"),
        ({"tasks": {"chain_sum": {"config": {"min_terms": "two"}}}}, "chain_sum does not accept"),
        ({"tasks": {"chain_sum": {"config": {"seed": 1}}}}, "'seed' is set beside `tasks`"),
        ({"tasks": {"chain_sum": {"min_terms": 1}}}, "Extra inputs"),
        ({"tasks": {"gcd": {"weight": 0}}}, "greater than 0"),
        ({"tasks": {"gcd": {"weight": float("inf")}}}, "finite number"),
        ({"tasks": ["gcd"], "prompt": "no place for it"}, "must contain {question}"),
        ({"tasks": ["gcd"], "size": 0}, "greater than 0"),
        ({"tasks": ["gcd"], "sise": 3}, "Extra inputs"),
    ],
)
def test_faults_are_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        DataOptions.model_validate(options)
    assert says in str(caught.value)


def test_all_faults_of_a_mixture_come_at_once() -> None:
    tasks = {"chain_sun": {}, "gcd": {"config": {"min_number": 1, "max_values": 5}}}
    with pytest.raises(ValidationError) as caught:
        DataOptions.model_validate({"tasks": tasks})
    for part in ("chain_sun", "min_number", "max_values"):
        assert part in str(caught.value)


def test_generators_that_need_a_fixed_hash_seed_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    with pytest.raises(ValidationError, match="PYTHONHASHSEED=0"):
        DataOptions(tasks=["word_ladder"])  # type: ignore
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    DataOptions(tasks=["word_ladder"])  # type: ignore


def test_the_reward_is_described_for_the_algorithm_card() -> None:
    assert RewardOptions(exact=True).card() == {
        "reasoning-gym reward": "1 if the generator's score of the whole text is full, else 0"
    }
    with pytest.raises(ValidationError, match="less than 1"):
        RewardOptions(contained=1.0)


def test_the_options_module_and_the_plugin_import_no_reasoning_gym() -> None:
    code = (
        "import sys, miles_plugin_reasoning_gym.plugin as p, miles_plugin_reasoning_gym.options as o;"
        "p.miles_data(); o.DataOptions.model_json_schema(); print('reasoning_gym' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
