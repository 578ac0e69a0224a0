"""Who waits for whom, and what dropping old groups does to lengths, in words."""

from __future__ import annotations

import json

import pytest

from miles_core.observe.bottleneck import bottleneck, length_bias, over_all
from miles_core.observe.folder import RunFolder
from miles_core.observe.report import write_report
from tests.observe.made_up import finished_run


@pytest.mark.parametrize(
    ("trainer", "engines", "more", "says"),
    [
        (0.41, 0.1, {}, "rollout is the bottleneck (trainer idle 41 %)"),
        (0.1, 0.3, {}, "training is the bottleneck (engines idle 30 %)"),
        (0.04, 0.01, {}, "rollout and training keep pace (trainer idle 4 %, engines 1 %)"),
        (0.0, 1.0, {"time/in_flight": 0.0, "time/held_back": 1.0}, "the engines have nothing left to make"),
    ],
)
def test_a_step_in_words(trainer, engines, more, says):
    metrics = {"time/trainer_idle": trainer, "time/engine_idle": engines, **more}
    assert bottleneck(metrics).startswith(says)
    assert bottleneck({"time/trainer_idle": trainer}) == ""


def test_a_run_in_words_weighs_steps_by_their_time():
    def step(trainer, engines, seconds):
        return {"time/trainer_idle": trainer, "time/engine_idle": engines, "time/step": seconds}

    steps = [step(0.9, 0.9, 100.0), step(0.5, 0.0, 1.0), step(0.1, 0.0, 3.0)]
    assert over_all(steps) == "rollout is the bottleneck (trainer idle 20 %)"
    assert over_all(steps[:1]) == over_all([{}, {}]) == ""


def test_dropping_what_is_old_is_named_when_it_drops_what_is_long():
    def step(stale, kept):
        return {"buffer/length_stale_mean": stale, "buffer/length_kept_mean": kept}

    assert length_bias([{}, step(30.0, 10.0), step(20.0, 15.0)]) == (
        "stale trajectories were 2.0 x as long as those that were kept (25 against 12 tokens): what is trained is "
        "biased towards short answers"
    )
    assert length_bias([step(11.0, 10.0)]) == length_bias([{}]) == ""


def test_the_report_says_both_and_what_an_adaptive_schedule_changed(tmp_path):
    folder: RunFolder = finished_run(tmp_path)
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    more = {"time/trainer_idle": 0.41, "time/engine_idle": 0.1, "time/step": 2.0, "buffer/staleness_max": 2}
    lengths = {"buffer/length_stale_mean": 40.0, "buffer/length_kept_mean": 10.0}
    folder.metrics.write_text("".join(json.dumps({**line, **more, **lengths}) + "\n" for line in lines))
    said = "in_flight 64 → 96: the trainer waited 41 % of the time"
    with folder.events.open("a") as events:
        events.write(json.dumps({"event": "schedule_adapted", "at": "now", "step": 5, "what": said}) + "\n")
    page = write_report(folder, decode=None).read_text(encoding="utf-8")
    for words in ("trainer idle 41 %", "4.0 x as long", said, "Length of what was thrown away", "Staleness", "Idle"):
        assert words in page, words
