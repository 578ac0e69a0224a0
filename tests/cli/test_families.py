"""`miles families`: what is printed, and the exit codes."""

from __future__ import annotations

import json

import pytest

from miles_core.cli.guard import guarded
from miles_core.testing import CharRenderer


def test_list_names_every_model_with_its_plugin(capsys):
    assert guarded(["families", "list", "--plugin", "toy", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["kind"]) for row in rows] == [("toy", "model")]


def test_check_as_json(capsys):
    assert guarded(["families", "check", "toy", "--plugin", "toy", "--conversations", "40", "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert report["component"] == "model.toy"
    assert report["evidence"] == "not-verified"
    assert report["why"] == "no template of the checkpoint here"
    assert report["checks"]["append-only"]["passed"] > 10
    assert report["checks"]["append-only"]["failed"] == 0


def test_check_over_the_turns_of_an_engine(capsys):
    words = [
        "families",
        "check",
        "toy",
        "--engine",
        "recipes/toy.yaml",
        "--turns",
        "20",
        "--conversations",
        "10",
        "--json",
    ]
    assert guarded(words) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert report["checks"]["live"]["passed"] >= 20


def test_a_failed_check_is_told_and_exits_with_1(capsys, monkeypatch):
    honest = CharRenderer.bridge
    monkeypatch.setattr(CharRenderer, "bridge", lambda self, tokens, messages, **rest: honest(self, tokens, [], **rest))
    assert guarded(["families", "check", "toy", "--plugin", "toy", "--conversations", "40"]) == 1
    page = capsys.readouterr().out
    assert "FAIL append-only" in page
    assert "failed" in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nobody"], "no family 'nobody' is registered; there are: toy"),
        (["toy", "--path", "/nowhere"], "does not take these options"),
        (["toy", "--set", "thinking"], "is no setting"),
        (["toy", "--set", "bogus=1"], "bogus: toy does not take these options"),
        (["toy", "toy", "--path", "x"], "one checkpoint is of one family"),
        (["toy", "--engine", "recipes/tiny.yaml"], "the recipe's model is 'scratch'"),
    ],
)
def test_wrong_requests_exit_with_2(words, said, capsys):
    plugins = [] if "--engine" in words else ["--plugin", "toy"]
    assert guarded(["families", "check", *words, *plugins]) == 2
    assert said in capsys.readouterr().err
