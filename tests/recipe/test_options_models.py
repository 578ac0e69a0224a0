"""Options models that would let a recipe's words vanish are refused, by name, whoever asks for them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field, ValidationError

from miles_core.contracts.options import Options
from miles_core.errors import PluginError, RequestError
from miles_core.recipe.json_schema import recipe_schema
from miles_core.recipe.schema import CORE_KEYS, EngineSection, GeneratorSection, RewardSection, RuntimeSection

PLUGIN = """
from miles_core import Component, hookimpl

@hookimpl
def miles_{hook}():
    return [Component("mine", "miles_plugin_mine_parts:Mine", "miles_plugin_mine_options:Mine")]
"""

PARTS = """
class Mine:
    def __init__(self, options, context):
        pass
"""


def add(kitchen: Any, options: str, hook: str = "rewards", kind: str = "reward") -> None:
    kitchen.site.plugin("mine", PLUGIN.format(hook=hook), provides=[f"{kind}.mine"])
    kitchen.site.module("miles_plugin_mine_options", options)
    kitchen.site.module("miles_plugin_mine_parts", PARTS)


def refused(kitchen: Any, section: str = "rewards", text: str = "[{use: mine}]") -> str:
    changes = {"plugins": "[toy, lab, mine]", section: text}
    with pytest.raises(PluginError) as error:
        kitchen.plan(kitchen.changed(**changes))
    return str(error.value)


def test_a_plain_pydantic_model_is_refused(kitchen: Any) -> None:
    add(kitchen, "from pydantic import BaseModel\nclass Mine(BaseModel):\n    words: int = 1\n")
    said = refused(kitchen, text="[{use: mine, wrds: 3}]")
    assert "mine (miles-plugin-mine 1.0)" in said and "expected a subclass of miles_core.Options" in said
    assert "miles_plugin_mine_options.py:2" in said and "class Mine(Options)" in said
    with pytest.raises(PluginError, match=r"subclass of miles_core\.Options"):
        recipe_schema(["mine"])


def test_a_model_that_lets_unknown_keys_pass_is_refused(kitchen: Any) -> None:
    source = "from miles_core import Options\nclass Mine(Options, extra='ignore'):\n    words: int = 1\n"
    add(kitchen, source)
    assert "accepts unknown keys" in refused(kitchen, text="[{use: mine, wrds: 3}]")


@pytest.mark.parametrize(
    ("hook", "kind", "section", "option"),
    [
        ("rewards", "reward", "rewards", "weight: float = 2.0"),
        ("rewards", "reward", "rewards", "name: str = ''"),
        ("rewards", "reward", "rewards", "use: str = ''"),
        ("rewards", "reward", "rewards", "own: float = Field(default=2.0, alias='weight')"),
        ("generators", "generator", "generator", "sampling: int = 1"),
        ("engines", "engine", "engine", "replicas: int = 1"),
        ("losses", "loss", "loss", "use: int = 1"),
    ],
)
def test_an_option_may_not_have_the_name_of_a_key_of_the_recipe(
    kitchen: Any, hook: str, kind: str, section: str, option: str
) -> None:
    add(kitchen, f"from miles_core import Options\nfrom pydantic import Field\nclass Mine(Options):\n    {option}\n",
        hook, kind)  # fmt: skip
    texts = {"rewards": "[{use: mine}]", "generator": "{use: mine, sampling: {max_new_tokens: 8}}"}
    said = refused(kitchen, section, texts.get(section, "{use: mine}"))
    name = "weight" if "alias" in option else option.partition(":")[0]
    assert f"has the option {name!r}, which is a key of the recipe's own" in said
    assert f"of {kind} 'mine'" in said and "mend: rename it" in said


def test_elsewhere_these_names_are_free(kitchen: Any) -> None:
    add(kitchen, "from miles_core import Options\nclass Mine(Options):\n    weight: float = 1.0\n", "losses", "loss")
    text = kitchen.changed(plugins="[toy, lab, mine]", loss="{use: mine, weight: 2}")
    assert kitchen.plan(text).recipe["loss"]["weight"] == 2.0


def test_the_reserved_names_are_those_of_the_sections() -> None:
    shapes: dict[str, type[BaseModel]] = {
        "generator": GeneratorSection,
        "engine": EngineSection,
        "rewards": RewardSection,
        "runtime": RuntimeSection,
    }
    assert {name: set(keys) for name, keys in CORE_KEYS.items()} == {
        name: set(shape.model_fields) - {"use"} for name, shape in shapes.items()
    }


def test_a_word_that_no_model_knows_is_still_the_recipes_fault(kitchen: Any) -> None:
    add(kitchen, "from miles_core import Options\nclass Mine(Options):\n    words: int = 1\n")
    with pytest.raises(RequestError, match="is not a known key"):
        kitchen.plan(kitchen.changed(plugins="[toy, lab, mine]", rewards="[{use: mine, wrds: 3}]"))


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (
            "bonus: float = Field(default='many')",
            'option `bonus` of miles_plugin_mine_options:Mine is "many", expected a',
        ),
        ("bonus: float | None = Field(default='many')", "option `bonus`"),
        ("bonus: int = Field(default=0, ge=1)", "is 0, expected 1 or more"),
        ("bonus: int = Field(default='x', alias='plus')", "option `bonus`"),
    ],
)
def test_a_wrong_default_is_the_plugins_fault(kitchen: Any, option: str, says: str) -> None:
    add(kitchen, f"from miles_core import Options\nfrom pydantic import Field\nclass Mine(Options):\n    {option}\n")
    said = refused(kitchen)
    assert "the default of" in said and says in said and "expected a mapping" not in said


def test_a_wrong_default_beside_a_wrong_word_is_told_apart(kitchen: Any) -> None:
    source = "from miles_core import Options\nclass Mine(Options):\n    bonus: float = 'many'\n    words: int = 1\n"
    add(kitchen, source)
    with pytest.raises(RequestError) as error:
        kitchen.plan(kitchen.changed(plugins="[toy, lab, mine]", rewards="[{use: mine, words: x}]"))
    said = [problem.what for problem in error.value.problems]
    assert len(said) == 2 and any("the default of option `bonus`" in each for each in said)
    assert any('words: is "x", expected an integer' in each for each in said)


@pytest.mark.parametrize(
    ("type_", "value", "mend"),
    [
        ("tuple[str, ...]", "[1]", 'quote it: "1"'),
        ("str", "true", 'quote it: "true"'),
        ("int", '"3"', "write 3 without quotes"),
        ("float", '"1e-3"', "write 1e-3 without quotes"),
        ("bool", '"True"', "write true without quotes"),
        ("tuple[str, ...]", "because", "write [because]"),
    ],
)
def test_a_wrong_type_says_how_to_write_it(kitchen: Any, type_: str, value: str, mend: str) -> None:
    add(kitchen, f"from miles_core import Options\nclass Mine(Options):\n    words: {type_}\n")
    with pytest.raises(RequestError) as error:
        kitchen.plan(kitchen.changed(plugins="[toy, lab, mine]", rewards=f"[{{use: mine, words: {value}}}]"))
    assert [problem.mend for problem in error.value.problems] == [mend]


@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_numbers_are_finite_unless_a_field_says_otherwise(value: str) -> None:
    class Some(Options):
        scale: float = 1.0
        limit: float = Field(default=1.0, allow_inf_nan=True)

    assert str(Some(limit=float(value)).limit) == value
    with pytest.raises(ValidationError, match="finite number"):
        Some(scale=float(value))


def test_research_code_without_options_says_so(kitchen: Any) -> None:
    kitchen.site.module("kr", "class Kr:\n    def __init__(self, options, context): pass\n")
    with pytest.raises(RequestError, match="kr:Kr has no class `Options`") as error:
        kitchen.plan(kitchen.changed(rewards='[{use: "kr:Kr", words: [a]}]'))
    assert "class `Options` inside it" in error.value.problems[0].mend
