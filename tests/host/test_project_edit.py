"""Editing miles.toml: the lists say what was meant, and nothing else of the file changes."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_core.errors import RequestError
from miles_core.host.project_edit import changed

ADDED = [
    ("", '[plugins]\nenable = ["x"]\n'),
    ("# mine\n[tool]\na = 1\n", '# mine\n[tool]\na = 1\n\n[plugins]\nenable = ["x"]\n'),
    ("[plugins]", '[plugins]\nenable = ["x"]\n'),
    ("[plugins] # ours\n[tool]\na = 1\n", '[plugins] # ours\nenable = ["x"]\n[tool]\na = 1\n'),
    ('[plugins]\ndisable = ["d"]\n', '[plugins]\nenable = ["x"]\ndisable = ["d"]\n'),
    ("[plugins]\nenable = []\n", '[plugins]\nenable = ["x"]\n'),
    ("[plugins]\nenable = ['a'] # why\n", "[plugins]\nenable = ['a', \"x\"] # why\n"),
    ('[plugins]\nenable = ["a", ]\n', '[plugins]\nenable = ["a", "x" ]\n'),
    ('[plugins]\nenable = [\n  "a", # the ]\n  "b"\n]\n', '[plugins]\nenable = [\n  "a", # the ]\n  "b",\n  "x"\n]\n'),
    (
        '[plugins]\nenable = [\n  "a", # first\n  "b", # last\n]\n',
        '[plugins]\nenable = [\n  "a", # first\n  "b", # last\n  "x",\n]\n',
    ),
    ('[plugins]\nenable = ["x"]\n', '[plugins]\nenable = ["x"]\n'),
    ('[tool]\nenable = ["t"]\n[plugins]\n', '[tool]\nenable = ["t"]\n[plugins]\nenable = ["x"]\n'),
]


@pytest.mark.parametrize(("before", "after"), ADDED)
def test_a_name_is_put_at_the_end(before: str, after: str) -> None:
    assert changed(before, "enable", add="x") == after


REMOVED = [
    ('[plugins]\nenable = ["x"]\n', "[plugins]\nenable = []\n"),
    ('[plugins]\nenable = ["x", "a"] # c\n', '[plugins]\nenable = ["a"] # c\n'),
    ('[plugins]\nenable = ["a", "x"]\n', '[plugins]\nenable = ["a"]\n'),
    ("[plugins]\nenable = ['a', 'x', 'b']\n", "[plugins]\nenable = ['a', 'b']\n"),
    (
        '[plugins]\nenable = [\n  "a", # keep\n  "x", # go\n  "b",\n]\n',
        '[plugins]\nenable = [\n  "a", # keep\n  "b",\n]\n',
    ),
    ('[plugins]\nenable = ["x", "x"]\n', "[plugins]\nenable = []\n"),
    ('[plugins]\ndisable = ["x"]\n', '[plugins]\ndisable = ["x"]\n'),
    ("", ""),
]


@pytest.mark.parametrize(("before", "after"), REMOVED)
def test_a_name_is_taken_out(before: str, after: str) -> None:
    assert changed(before, "enable", remove=("x",)) == after


@pytest.mark.parametrize(
    "text", ['plugins = {enable = ["a"]}', 'plugins.enable = ["a"]', '[plugins]\n"en\\u0061ble" = ["a"]']
)
def test_a_form_that_is_not_understood_is_refused_not_damaged(text: str) -> None:
    with pytest.raises(RequestError) as error:
        changed(text, "enable", add="x")
    assert 'enable = ["a", "x"]' in error.value.problems[0].mend


ITEM = st.sampled_from(['"a"', "'b'", '"c d"', '"#]"', '"x"'])
GAP = st.sampled_from(["", " ", "\n", "\n  ", ' # ], "q"\n  '])


@st.composite
def files(draw: st.DrawFn) -> str:
    """A file with a list in any layout, comments that look like syntax included."""
    items = draw(st.lists(ITEM, max_size=4))
    inside = ""
    for number, item in enumerate(items):
        last = number + 1 == len(items)
        inside += draw(GAP) + item + draw(GAP) + ("," if not last or draw(st.booleans()) else "")
    key = draw(st.sampled_from(["enable", "disable"]))
    before = draw(st.sampled_from(["", "# note\n", '[a]\nenable = ["x"]\n', "top = 1\n"]))
    after = draw(st.sampled_from(["", "\n[z]\nq = [1]\n", "\n# the end"]))
    return f"{before}[plugins]\n{key} = [{inside}{draw(GAP)}]{after}"


@given(text=files(), key=st.sampled_from(["enable", "disable"]), add=st.sampled_from(["", "x", 'new "one"']))
def test_whatever_the_layout_the_lists_are_right_and_the_rest_stays(text: str, key: str, add: str) -> None:
    before = tomllib.loads(text)
    after = changed(changed(text, key, remove=("a", "x")), key, add=add)
    names = [each for each in before["plugins"].get(key, []) if each not in ("a", "x")]
    wanted = [*names, add] if add and add not in names else names
    data = tomllib.loads(after)
    assert data["plugins"].get(key, []) == wanted
    other = "disable" if key == "enable" else "enable"
    assert {k: v for k, v in data.items() if k != "plugins"} == {k: v for k, v in before.items() if k != "plugins"}
    assert data["plugins"].get(other) == before["plugins"].get(other)
    assert text.partition("[plugins]")[0] == after.partition("[plugins]")[0]
