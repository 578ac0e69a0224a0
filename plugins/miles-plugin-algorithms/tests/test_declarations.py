"""What the package declares: its components, their algorithm cards and checks, and no torch before it is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import distribution

import pytest
from miles_plugin_algorithms import plugin

from miles_core import BuildContext, Options, RecipeFacts, Sampling, load_attribute

COMPONENTS = {
    f"{kind}.{component.name}": component
    for kind, hook in [
        ("advantage", plugin.miles_advantages),
        ("loss", plugin.miles_losses),
        ("correction", plugin.miles_corrections),
    ]
    for component in hook()
}


def facts(**changes: object) -> RecipeFacts:
    plain = {"group_size": 8, "groups_per_step": 4, "optimizer_steps": 1, "steps": 10, "sampling": Sampling()}
    return RecipeFacts(**{**plain, **changes})  # type: ignore[arg-type]


def test_the_static_list_is_what_the_code_registers():
    declared = {e.name for e in distribution("miles-plugin-algorithms").entry_points if e.group == "miles.provides"}
    assert declared == set(COMPONENTS)


@pytest.mark.parametrize("name", COMPONENTS)
def test_components_build_from_their_defaults(name):
    options = load_attribute(COMPONENTS[name].options)
    assert issubclass(options, Options)
    load_attribute(COMPONENTS[name].factory)(options(), BuildContext(seed=0, name="test"))


@pytest.mark.parametrize("name", COMPONENTS)
def test_options_travel_as_json(name):
    model = load_attribute(COMPONENTS[name].options)
    assert model.model_validate(json.loads(model().model_dump_json())) == model()
    assert model.model_json_schema()["additionalProperties"] is False


@pytest.mark.parametrize("name", COMPONENTS)
def test_every_option_has_a_description(name):
    schema = load_attribute(COMPONENTS[name].options).model_json_schema()
    missing = [key for key, value in schema["properties"].items() if not value.get("description")]
    assert not missing


def test_options_advantages_and_registration_import_no_torch():
    """Recipes are validated, and advantages computed in the driver, without torch."""
    advantages = [c.factory for key, c in COMPONENTS.items() if key.startswith("advantage.")]
    paths = [c.options for c in COMPONENTS.values()] + advantages
    code = (
        "import sys; from miles_core import load_attribute; import miles_plugin_algorithms.plugin\n"
        f"for path in {paths!r}: load_attribute(path)\n"
        "for name in ('torch', 'ray', 'transformers'): assert name not in sys.modules, name"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def card(name: str, **options: object) -> dict[str, str]:
    return dict(load_attribute(COMPONENTS[name].options)(**options).card())


@pytest.mark.parametrize("name", [n for n in COMPONENTS if n.startswith("advantage.")])
def test_every_advantage_declares_what_its_name_leaves_open(name):
    assert {"baseline", "divided by", "group of one", "all rewards equal", "spread"} <= set(card(name))


def test_the_cards_follow_the_options():
    plain = card("advantage.grpo")
    assert "ddof 1" in plain["standard deviation"]
    assert plain["epsilon"].startswith("1e-06")
    assert "ddof 0" in card("advantage.grpo", ddof=0)["standard deviation"]
    assert "standard deviation" not in card("advantage.grpo", scale="none")
    assert "epsilon" not in card("advantage.grpo", scale="none")
    assert "leave-one-out" in card("advantage.grpo", baseline="others")["baseline"]
    assert card("advantage.grpo", singleton="raw")["group of one"] != plain["group of one"]
    policy = card("loss.policy", clip=[0.2, 0.28], kl={"estimator": "k3", "weight": 0.01})
    assert "[0.8, 1.28]" in policy["clip"]
    assert "k3" in policy["KL to a reference"]
    assert "policy minus" in policy["KL to a reference"]
    assert card("loss.policy")["KL to a reference"].startswith("none")
    assert "256 tokens" in card("loss.policy", reduce="constant-length", length=256)["normaliser"]
    assert "all sampled tokens" in card("loss.supervised", reduce="token-mean")["normaliser"]
    assert "[0, 2]" in card("correction.tis")["weight"]
    assert "[0.5, 5]" in card("correction.pop")["weight"]
    assert "geometric" in card("correction.mask")["mismatch ratio"]


@pytest.mark.parametrize("name", [n for n in COMPONENTS if n.startswith("advantage.")])
def test_group_size_one_is_refused_with_the_reason_and_the_mend(name):
    (sentence,) = load_attribute(COMPONENTS[name].options)().check(facts(group_size=1))
    assert name.removeprefix("advantage.") in sentence
    assert "schedule.group_size is 1" in sentence
    assert "set schedule.group_size to 2 or more" in sentence


@pytest.mark.parametrize("name", [n for n in COMPONENTS if n.startswith("advantage.")])
def test_greedy_sampling_has_nothing_to_compare(name):
    (sentence,) = load_attribute(COMPONENTS[name].options)().check(facts(sampling=Sampling(temperature=0.0)))
    assert "generator.sampling.temperature" in sentence


def test_a_leave_one_out_deviation_needs_two_others():
    options = load_attribute(COMPONENTS["advantage.grpo"].options)
    (sentence,) = options(baseline="others").check(facts(group_size=2))
    assert "schedule.group_size to 3 or more" in sentence
    assert not list(options(baseline="others", scale="none").check(facts(group_size=2)))


@pytest.mark.parametrize("name", COMPONENTS)
def test_an_ordinary_recipe_is_accepted(name):
    assert not list(load_attribute(COMPONENTS[name].options)().check(facts()))
