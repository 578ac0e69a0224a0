"""The allow-list: what it enables, and every fault of it before anything is imported."""

import pytest

import miles_core
from miles_core.host.decide import CORE_MODULE, decide
from miles_core.host.scan import Index, InstalledPlugin

CORE = InstalledPlugin("core", "miles-core", "0.1.0", CORE_MODULE, location="/site/miles_core-0.1.0.dist-info")


def plugin(name: str, distribution: str = "", version: str = "1.0", requires: tuple[str, ...] = ()) -> InstalledPlugin:
    return InstalledPlugin(name, distribution or f"miles-plugin-{name}", version, name, requires=requires)


def index(*plugins: InstalledPlugin, shadowed: tuple[InstalledPlugin, ...] = ()) -> Index:
    return Index((CORE, *plugins), shadowed)


def test_the_core_comes_first_and_need_not_be_named() -> None:
    decision = decide(index(plugin("math"), plugin("torch")), ["torch"])
    assert [each.name for each in decision.enabled] == ["core", "torch"]
    assert not decision.refusals


def test_the_core_is_found_without_its_metadata() -> None:
    core = decide(Index(()), []).enabled[0]
    assert (core.name, core.module, core.version) == ("core", CORE_MODULE, miles_core.__version__)


SPELLINGS = [
    "reasoning-gym",
    "Reasoning_Gym",
    "miles-plugin-reasoning-gym",
    "Miles.Plugin.Reasoning_Gym",
    "miles-plugin-reasoning-gym:reasoning-gym",
]


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_of_a_name_is_the_same_plugin(name: str) -> None:
    decision = decide(index(plugin("reasoning-gym")), [name])
    assert [each.name for each in decision.enabled] == ["core", "reasoning-gym"]


def test_naming_a_plugin_twice_enables_it_once() -> None:
    assert len(decide(index(plugin("math")), ["math", "miles-plugin-math"]).enabled) == 2


def test_an_unknown_name_gets_the_nearest_and_how_to_install_it() -> None:
    refusal = decide(index(plugin("reasoning-gym")), ["reasoning_gim"]).refusals[0]
    assert "'reasoning_gim' is not installed; installed: reasoning-gym" in refusal.problem.what
    assert "did you mean 'reasoning-gym'" in refusal.problem.mend
    assert "pip install miles-plugin-reasoning-gim" in refusal.problem.mend
    assert not refusal.broken


def test_a_name_that_nothing_resembles_gets_only_how_to_install_it() -> None:
    refusal = decide(index(plugin("math")), ["miles-plugin-harbor"]).refusals[0]
    assert refusal.problem.mend == "install it: pip install miles-plugin-harbor"


def test_two_distributions_with_one_name_are_ambiguous_until_one_is_named() -> None:
    twice = index(plugin("math", "a-math", "1.0"), plugin("math", "b-math", "2.0"))
    refusal = decide(twice, ["math"]).refusals[0]
    assert refusal.broken
    assert "a-math 1.0" in refusal.problem.what and "b-math 2.0" in refusal.problem.what
    assert "a-math:math or b-math:math" in refusal.problem.mend
    assert decide(twice, ["b-math:math"]).enabled[1].distribution == "b-math"
    assert decide(twice, ["a-math"]).enabled[1].distribution == "a-math"


@pytest.mark.parametrize("requirement", ["miles-core>=99", "miles_core<0.1", "Miles.Core ~=7.0"])
def test_an_unmet_requirement_is_said_with_both_versions(requirement: str) -> None:
    refusal = decide(index(plugin("math", requires=("numpy", requirement))), ["math"], core_version="0.1.0").refusals[0]
    assert refusal.broken
    assert f"math (miles-plugin-math 1.0) needs {requirement}, this is miles-core 0.1.0" in refusal.problem.what


@pytest.mark.parametrize(
    "requirement", ["miles-core", "miles-core>=0.1,<1", "miles-core>=99; python_version < '3'", "miles-core-extras>=9"]
)
def test_a_met_or_foreign_requirement_is_no_fault(requirement: str) -> None:
    assert not decide(index(plugin("math", requires=(requirement,))), ["math"], core_version="0.1.0").refusals


def test_an_unreadable_requirement_is_a_fault_of_the_plugin() -> None:
    refusal = decide(index(plugin("math", requires=("miles-core>>>1",))), ["math"]).refusals[0]
    assert refusal.broken and "the requirement 'miles-core>>>1' cannot be read" in refusal.problem.what


def test_all_faults_come_at_once_with_their_place_in_the_list() -> None:
    decision = decide(
        index(plugin("a"), plugin("math", "x"), plugin("math", "y"), plugin("old", requires=("miles-core>=99",))),
        ["nosuch", "a", "math", "old"],
    )
    assert [refusal.position for refusal in decision.refusals] == [0, 2, 3]
    assert [each.name for each in decision.enabled] == ["core", "a"]


def test_a_hidden_plugin_is_not_called_uninstalled() -> None:
    hidden = plugin("math")._replace(shadowed_by="/src/miles_plugin_math.egg-info")
    refusal = decide(index(shadowed=(hidden,)), ["math"]).refusals[0]
    assert "hidden by /src/miles_plugin_math.egg-info" in refusal.problem.what
