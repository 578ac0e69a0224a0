"""Finding components by name, and what is said when one is not there."""

import pytest

from miles_core.contracts.component import Component, ComponentRef
from miles_core.errors import PluginError, RequestError
from miles_core.host.registry import Registered, Registry
from miles_core.host.scan import Index, InstalledPlugin

MATH = InstalledPlugin("math", "miles-plugin-math", "1.0", "m", provides=("reward.sums", "reward.proofs"))
LOGIC = InstalledPlugin("logic", "miles-plugin-logic", "2.0", "l", provides=("reward.sums",))
IDLE = InstalledPlugin("idle", "miles-plugin-idle", "3.0", "i", provides=("loss.lazy", "reward.harbor"))
BROKEN = InstalledPlugin("broken", "miles-plugin-broken", "0.1", "b", provides=("loss.cracked",))


def registry() -> Registry:
    return Registry(
        Index((MATH, LOGIC, IDLE, BROKEN)),
        [MATH, LOGIC],
        [
            Registered("reward", Component("sums", "m:Sums", "m:Options"), MATH),
            Registered("reward", Component("proofs", "m:Proofs"), MATH),
            Registered("reward", Component("sums", "l:Sums"), LOGIC),
            Registered("advantage", Component("grpo", "m:Grpo"), MATH),
        ],
        {},
        [BROKEN],
    )


def test_a_component_by_name_and_by_value() -> None:
    found = registry().find("reward", "proofs")
    assert found.plugin == MATH
    assert registry().ref("reward", "proofs", {"a": 1}) == ComponentRef(
        "reward", "proofs", "m:Proofs", "miles_core.contracts.options:NoOptions", {"a": 1}, "miles-plugin-math", "1.0"
    )


def test_two_providers_are_ambiguous_until_the_distribution_is_named() -> None:
    with pytest.raises(PluginError) as error:
        registry().find("reward", "sums")
    assert "math (miles-plugin-math 1.0) and by logic (miles-plugin-logic 2.0)" in str(error.value)
    assert "miles-plugin-math:sums or miles-plugin-logic:sums" in error.value.problems[0].mend
    assert registry().find("reward", "miles-plugin-logic:sums").plugin == LOGIC
    assert registry().find("reward", "Miles_Plugin.Logic:sums").plugin == LOGIC


def mend(kind: str, name: str) -> str:
    with pytest.raises(RequestError) as error:
        registry().find(kind, name)
    assert error.value.exit_code == 2
    return error.value.problems[0].mend


def test_an_unknown_name_gets_the_nearest() -> None:
    assert mend("reward", "prooofs") == "did you mean 'proofs'?"


def test_an_installed_but_not_enabled_one_says_how_to_enable_it() -> None:
    assert mend("loss", "lazy") == 'add "idle" to plugins:'
    assert mend("loss", "lasy") == "did you mean 'lazy'? Then add \"idle\" to plugins:"


def test_a_name_of_another_kind_says_which() -> None:
    assert mend("loss", "grpo") == "'grpo' is of kind advantage, not loss"


def test_a_name_that_nobody_knows_says_what_may_be_installed() -> None:
    assert "possibly: pip install miles-plugin-tau-bench" in mend("agent", "tau_bench")


def test_the_component_of_a_broken_plugin_is_a_fault_of_the_plugin() -> None:
    with pytest.raises(PluginError, match="belongs to plugin broken") as error:
        registry().find("loss", "cracked")
    assert error.value.exit_code == 3
