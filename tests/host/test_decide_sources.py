"""Who wins: the decision against a tiny reference, and the reasons that it keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_core.host.decide import Decision, decide
from miles_core.host.names import matching
from miles_core.host.project import ProjectEntry
from miles_core.host.request import BLOCKS, ENABLES, PROJECT, PluginRequest, Wish, read_request
from miles_core.host.scan import Index, InstalledPlugin

CORE = InstalledPlugin("core", "miles-core", "0.1.0", "miles_core.components")


def plugin(name: str, distribution: str = "", **more: str) -> InstalledPlugin:
    return InstalledPlugin(name, distribution or f"miles-plugin-{name}", "1.0", name, **more)


ABC = Index((CORE, plugin("a"), plugin("b"), plugin("c")))


def request(
    *,
    cli: tuple[str, ...] = (),
    env: str | None = None,
    project: tuple[str, ...] = (),
    recipe: tuple[str, ...] = (),
    no_plugins: bool = False,
) -> PluginRequest:
    environ = {} if env is None else {"MILES_PLUGINS": env}
    read = read_request(cli, no_plugins=no_plugins, environ=environ, folder=Path("/nonexistent"))
    entries = [ProjectEntry(each.removeprefix("no:"), not each.startswith("no:"), "miles.toml:1") for each in project]
    wishes = [Wish(PROJECT, each.where, each.name, ENABLES if each.enables else BLOCKS) for each in entries]
    whole = PluginRequest((*wishes, *read.wishes), read.replacing, read.core_only)
    return whole.with_recipe(recipe, [f"r.yaml:{line}" for line in range(len(recipe))])


def names(decision: Decision) -> list[str]:
    return [each.name for each in decision.enabled[1:]]


def reference(cli: list[str], env: list[str] | None, project: list[str], recipe: list[str]) -> set[str]:
    """Each source, from weak to strong, overwrites what was so far; in one source the block is applied last."""
    on: set[str] = set()
    for source in (recipe, project, env, cli):
        if source is None:
            continue
        if source is env and (not env or any(not each.startswith("no:") for each in env)):
            on.clear()
        on |= {each for each in source if not each.startswith("no:")}
        on -= {each.removeprefix("no:") for each in source if each.startswith("no:")}
    return on


ENTRIES = st.lists(st.sampled_from(["a", "b", "c", "no:a", "no:b", "no:c"]), max_size=4)


@given(cli=ENTRIES, env=st.none() | ENTRIES, project=ENTRIES, recipe=ENTRIES)
def test_the_decision_is_the_reference(
    cli: list[str], env: list[str] | None, project: list[str], recipe: list[str]
) -> None:
    asked = request(
        cli=tuple(cli), env=None if env is None else ",".join(env), project=tuple(project), recipe=tuple(recipe)
    )
    decision = decide(ABC, asked)
    assert not decision.refusals
    assert set(names(decision)) == reference(cli, env, project, recipe)
    mentioned = [each.removeprefix("no:") for source in (recipe, project, env or [], cli) for each in source]
    assert names(decision) == [each for each in dict.fromkeys(mentioned) if each in names(decision)]
    assert {each.name for each in decision.verdicts} == {"core", *mentioned}
    for verdict in decision.verdicts:
        assert (verdict.status == "enabled") == (verdict.plugin in decision.enabled)
        assert [reason.won for reason in verdict.reasons] == [True] + [False] * (len(verdict.reasons) - 1)
    json.dumps([verdict.to_json() for verdict in decision.verdicts])


@given(cli=ENTRIES, env=st.none() | ENTRIES, project=ENTRIES, recipe=ENTRIES)
def test_no_plugins_leaves_the_core_whatever_is_said(
    cli: list[str], env: list[str] | None, project: list[str], recipe: list[str]
) -> None:
    blocks = tuple(each for each in cli if each.startswith("no:"))
    text = None if env is None else ",".join(env)
    asked = request(cli=blocks, env=text, project=tuple(project), recipe=(*recipe, "nosuch"), no_plugins=True)
    decision = decide(ABC, asked)
    assert decision.enabled == (CORE,) and not decision.refusals


def test_the_chain_of_reasons_says_who_won_and_what_lost() -> None:
    asked = request(cli=("no:a",), env="a", project=("no:a",), recipe=("a",))
    verdict = next(each for each in decide(ABC, asked).verdicts if each.name == "a")
    assert [(each.source, each.where, each.says, each.won) for each in verdict.reasons] == [
        ("command line", "--plugin no:a", "blocks", True),
        ("environment", "MILES_PLUGINS=a", "enables", False),
        ("project", "miles.toml:1", "blocks", False),
        ("recipe", "r.yaml:0", "enables", False),
    ]
    assert (verdict.status, verdict.off_because) == ("disabled", "--plugin no:a blocks")


WAYS_BACK = [
    ({"cli": ("no:a",)}, "--plugin no:a blocks", "leave out --plugin no:a"),
    ({"no_plugins": True}, "--no-plugins blocks", "run without --no-plugins"),
    ({"env": "no:a"}, "MILES_PLUGINS=no:a blocks", "take it out of MILES_PLUGINS, or run with --plugin a"),
    ({"env": "b"}, "MILES_PLUGINS=b leaves out", "add a to MILES_PLUGINS or unset it, or run with --plugin a"),
    ({"env": ""}, "MILES_PLUGINS= leaves out", "add a to MILES_PLUGINS or unset it, or run with --plugin a"),
    ({"project": ("no:a",)}, "miles.toml:1 disables", "miles plugins enable a, or for once --plugin a"),
]


@pytest.mark.parametrize(("sources", "because", "way_back"), WAYS_BACK)
def test_whoever_blocks_it_there_is_a_way_back(sources: dict[str, object], because: str, way_back: str) -> None:
    (verdict,) = decide(ABC, request(recipe=("a",), **sources)).off  # type: ignore[arg-type]
    assert (verdict.off_because, verdict.way_back) == (because, way_back)


@pytest.mark.parametrize("spelling", ["c-d", "C_D", "miles-plugin-c-d", "Miles.Plugin_C.D", "miles_plugin_c_d:c.d"])
@pytest.mark.parametrize("source", ["cli", "env", "project"])
def test_every_spelling_blocks(spelling: str, source: str) -> None:
    index = Index((CORE, plugin("c-d")))
    entry = f"no:{spelling}"
    asked = request(recipe=("c-d",), **{source: entry if source == "env" else (entry,)})  # type: ignore[arg-type]
    assert names(decide(index, asked)) == []


def test_unknown_names_are_refused_with_the_nearest_each_at_its_source() -> None:
    index = Index((CORE, plugin("torch")))
    decision = decide(index, request(cli=("troch", "no:tourch"), env="no:torhc,torch", recipe=("nosuch",)))
    assert [(each.position, each.problem.where) for each in decision.refusals] == [
        (-1, "MILES_PLUGINS=no:torhc,torch"),
        (-1, "--plugin troch"),
        (-1, "--plugin no:tourch"),
    ]
    assert all("did you mean 'torch'" in each.problem.mend and not each.broken for each in decision.refusals)


def test_what_is_not_installed_and_not_wanted_is_no_fault() -> None:
    assert not decide(ABC, request(cli=("no:wandb",), recipe=("a", "wandb"))).refusals
    assert not decide(ABC, request(env="a", recipe=("a", "wandb"))).refusals
    assert not decide(ABC, request(project=("no:wandb",), recipe=("a",))).refusals
    assert not decide(ABC, request(cli=("no:milesfile",), recipe=("a",))).refusals
    (refusal,) = decide(ABC, request(cli=("wandb",), project=("no:wandb",))).refusals
    assert refusal.problem.where == "--plugin wandb"


TWO = Index((CORE, plugin("math", "a-math"), plugin("math", "b-math"), plugin("c")))


@pytest.mark.parametrize("asked", [{"cli": ("math",)}, {"env": "math"}, {"project": ("math",)}, {"recipe": ("math",)}])
def test_an_ambiguous_name_is_refused_whoever_says_it(asked: dict[str, object]) -> None:
    decision = decide(TWO, request(**asked))  # type: ignore[arg-type]
    (refusal,) = decision.refusals
    assert refusal.broken and "a-math:math or b-math:math" in refusal.problem.mend and names(decision) == []
    assert {each.status for each in decision.verdicts if each.name == "math"} == {"conflict"}


SETTLED = [
    ({"recipe": ("math",), "cli": ("no:a-math",)}, ["b-math"]),
    ({"recipe": ("math",), "project": ("no:b-math:math",)}, ["a-math"]),
    ({"recipe": ("math",), "cli": ("b-math:math",)}, ["b-math"]),
    ({"recipe": ("math", "a-math", "b-math")}, ["a-math", "b-math"]),
    ({"recipe": ("math",), "cli": ("no:math",)}, []),
    ({"recipe": ("math",), "env": "c"}, ["miles-plugin-c"]),
    ({"recipe": ("math",), "no_plugins": True}, []),
]


@pytest.mark.parametrize(("asked", "enabled"), SETTLED)
def test_another_word_may_settle_whom_it_means(asked: dict[str, object], enabled: list[str]) -> None:
    decision = decide(TWO, request(**asked))  # type: ignore[arg-type]
    assert not decision.refusals
    assert [each.distribution for each in decision.enabled[1:]] == enabled


MANY = Index((CORE, plugin("math", "a-math"), plugin("math", "b-math"), plugin("c")))
ANY = st.lists(
    st.sampled_from(["math", "a-math:math", "b-math", "c", "nosuch", "no:math", "no:a-math", "no:c", "no:nosuch"]),
    max_size=3,
)


@given(cli=ANY, env=st.none() | ANY, project=ANY, recipe=ANY, data=st.data())
def test_nothing_asked_for_is_dropped_silently(
    cli: list[str], env: list[str] | None, project: list[str], recipe: list[str], data: st.DataObject
) -> None:
    def decided(*sources: list[str] | None) -> Decision:
        first, second, third, fourth = sources
        text = None if second is None else ",".join(second)
        return decide(
            MANY, request(cli=tuple(first or ()), env=text, project=tuple(third or ()), recipe=tuple(fourth or ()))
        )

    decision = decided(cli, env, project, recipe)
    refused = {refusal.problem.where for refusal in decision.refusals}
    for entry in cli:
        meant = matching(MANY.plugins, entry.removeprefix("no:"))
        if entry.startswith("no:"):
            assert not set(meant) & set(decision.enabled)
            continue
        blocked = {each for other in cli if other.startswith("no:") for each in matching(MANY.plugins, other[3:])}
        assert set(meant) & set(decision.enabled) or f"--plugin {entry}" in refused or (meant and set(meant) & blocked)
    everything = [*cli, *(env or []), *project, *recipe]
    both = sum(each.name == "math" for each in decision.enabled) == 2
    assert not both or {"a-math:math", "b-math"} <= set(everything)
    shuffled = [None if each is None else data.draw(st.permutations(each)) for each in (cli, env, project, recipe)]
    again = decided(*shuffled)
    assert set(again.enabled) == set(decision.enabled) and len(again.refusals) == len(decision.refusals)


@pytest.mark.parametrize("name", ["core", "miles-core", "miles_core:core"])
def test_the_core_cannot_be_blocked(name: str) -> None:
    toy = InstalledPlugin("toy", "miles-core", "0.1.0", "toy")
    decision = decide(Index((CORE, toy)), request(cli=(f"no:{name}",)))
    assert "cannot be blocked" in decision.refusals[0].problem.what and CORE in decision.enabled


def test_the_milesfile_is_enabled_by_being_there_and_is_blocked_like_any_other() -> None:
    milesfile = InstalledPlugin(
        "milesfile", "", "", "milesfile", summary="beside the recipe", location="/r/milesfile.py"
    )
    index = Index((CORE, milesfile))
    found = decide(index, request())
    assert names(found) == ["milesfile"] and found.verdicts[1].reasons[0].where == "beside the recipe"
    assert names(decide(index, request(cli=("no:milesfile",)))) == []
    assert names(decide(index, request(no_plugins=True))) == []
    assert names(decide(index, [])) == [] and names(decide(index, ["milesfile"])) == ["milesfile"]
    assert matching(index.plugins, "Milesfile") == [milesfile]
