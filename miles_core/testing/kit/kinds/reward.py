"""A reward: one score for each trajectory, in order, whatever else is being scored at the time."""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Sequence as Several
from dataclasses import replace

from miles_core.contracts.rollout import Reward
from miles_core.testing.kit.check import Grade, check, expect
from miles_core.testing.kit.samples import group_of, sample_groups, sample_tasks, snapshot
from miles_core.testing.kit.stalls import expect_free_loop
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.trajectory import Group, Score, Status

Scores = list[Score | None]


@check("reward", Grade.GOLD, "one score or None for each trajectory of a group, in order, also when many are scored")
async def order_under_concurrency(subject: ComponentSubject) -> None:
    reward: Reward = subject.build()
    groups = sample_groups(subject)
    alone = [await _scores(reward, group) for group in groups]
    for group, scores in zip(groups, alone, strict=True):
        _expect_scores(scores, group)
    together = await asyncio.gather(*(_scores(reward, group) for group in groups * 3))
    expect(
        [_values(scores) for scores in together] == [_values(scores) for scores in alone] * 3,
        "groups scored together get other scores than each alone",
        "keep nothing of a group on the object, and give scores back in the order of group.trajectories",
    )
    backwards = await _scores(reward, _reversed(groups[0]))
    expect(
        _values(backwards)[::-1] == _values(alone[0]),
        f"a group got {_values(alone[0])}, the same group backwards {_values(backwards)}",
        "give scores back in the order of group.trajectories",
    )


@check("reward", Grade.GOLD, "the same group gets the same scores again, from another object too")
async def deterministic(subject: ComponentSubject) -> None:
    group = sample_groups(subject)[0]
    reward: Reward = subject.build()
    first = _values(await _scores(reward, group))
    for again in (reward, subject.build()):
        second = _values(await _scores(again, group))
        expect(first == second, f"scores {first}, then {second}", "derive randomness from the trajectory, if any")


@check("reward", Grade.GOLD, "it changes nothing of the group that it scores")
async def leaves_the_group_alone(subject: ComponentSubject) -> None:
    group = sample_groups(subject)[0]
    before = copy.deepcopy(snapshot(group))
    await _scores(subject.build(), group)
    expect(snapshot(group) == before, "the group is another one after scoring", "return scores and change nothing")


@check("reward", Grade.GOLD, "it takes any text: empty, very long, any language")
async def any_text(subject: ComponentSubject) -> None:
    texts = [
        "",
        " \n\t",
        "答案是 42 — ответ: 42 — 답은 42",
        "\u202e\U0001f600\x00",
        "word " * 4_000,
        "{[(<answer>\\frac",
    ]
    odd = group_of(sample_tasks(subject, 1)[0], texts)
    _expect_scores(await _scores(subject.build(), odd), odd)


@check("reward", Grade.GOLD, "an attempt that failed, and a task without an answer, are scored or refused in words")
async def failed_attempts(subject: ComponentSubject) -> None:
    reward: Reward = subject.build()
    task = sample_tasks(subject, 1)[0]
    for group in (
        group_of(task, ("", "3"), statuses=(Status.FAILED, Status.COMPLETED)),
        group_of(replace(task, answer=None), ("3",)),
    ):
        try:
            scores = await _scores(reward, group)
        except Exception as error:
            expect(str(error), f"it raises {type(error).__name__} without a word", "say what the task lacks")
        else:
            _expect_scores(scores, group)


@check("reward", Grade.GOLD, "while it scores, the event loop goes on: it is the driver's, which all attempts share")
async def leaves_the_loop_free(subject: ComponentSubject) -> None:
    reward: Reward = subject.build()
    group = max(sample_groups(subject), key=lambda each: len(each.trajectories))
    await expect_free_loop(lambda: reward.score(group), "score")


async def _scores(reward: Reward, group: Group) -> Scores:
    return await reward.score(group)


def _values(scores: Several[Score | None]) -> list[float | None]:
    return [None if score is None else float(score.value) for score in scores]


def _expect_scores(scores: Scores, group: Group) -> None:
    wanted = len(group.trajectories)
    expect(isinstance(scores, list | tuple), f"it returned {scores!r:.100}", "return a list of Score or None")
    expect(
        len(scores) == wanted, f"{len(scores)} scores for {wanted} trajectories", "one for each, None for no verdict"
    )
    wrong = [each for each in scores if each is not None and not isinstance(each, Score)]
    expect(not wrong, f"a score is {wrong[0] if wrong else None!r}", "wrap each number in miles_core.Score")
    finite = all(each is None or math.isfinite(each.value) for each in scores)
    expect(finite, f"the values are {_values(scores)}", "a value is a finite number; None is no verdict")


def _reversed(group: Group) -> Group:
    return group.replacing(tuple(reversed(group.trajectories)))
