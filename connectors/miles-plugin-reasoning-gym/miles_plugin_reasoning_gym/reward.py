"""The score that the task's own generator gives to the model's text."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from miles_core import BuildContext, Group, RunError, Score, Task
from miles_plugin_reasoning_gym.generators import Origin, digest
from miles_plugin_reasoning_gym.options import RewardOptions

_NUMBER = re.compile(r"(?:(?<![\w)])-)?\d+(?:,\d{3})*(?:\.\d+)?")
"""A minus directly after a digit, letter or bracket is subtraction and no sign."""
_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class ReasoningGymReward:
    """Scores groups whose tasks came from the data `reasoning-gym`, also after a round trip through a file."""

    def __init__(self, options: RewardOptions, context: BuildContext) -> None:
        self._options = options

    async def score(self, group: Group) -> list[Score | None]:
        """One score in [0, 1] for each trajectory. Raises RunError, naming the task, when the task is not
        reasoning-gym's, its entry cannot be made again, or the generator's scorer raises."""
        return [self._score(group.task, trajectory.text) for trajectory in group.trajectories]

    def _score(self, task: Task, text: str) -> Score:
        answer = extract(text, self._options.extract)
        if answer is None:
            score = Score(0.0, f"no {self._options.extract} in the text")
        else:
            score = self._judge(task, answer)
        floor = self._options.contained
        if score.value < floor and task.answer is not None and contains(text, task.answer):
            return Score(floor, "the right answer is contained")
        return score

    def _judge(self, task: Task, answer: str) -> Score:
        origin = _origin(task)
        entry = _entry(origin, str(task.metadata["digest"]), task.id)
        try:
            value = float(origin.dataset().score_answer(answer, entry))
        except Exception as error:  # some scorers raise on what they cannot parse
            reason = f"{type(error).__name__}: {error}"
            if self._options.unreadable is not None:
                return Score(self._options.unreadable, f"the scorer of {origin.generator} raised {reason}")
            raise RunError(
                f"reasoning-gym's scorer of {origin.generator!r} raised {reason}",
                where=f"task {task.id!r}, answer {answer!r:.200}",
                mend="set `unreadable` of this reward to the score that such an answer gets, e.g. 0",
            ) from error
        if not 0 <= value <= 1:
            raise RunError(f"reasoning-gym's scorer of {origin.generator!r} gave {value}", where=f"task {task.id!r}")
        return Score(float(value >= 1) if self._options.exact else value, f"answer {answer!r:.200}")


def extract(text: str, part: str) -> str | None:
    """The part of a text that is scored, stripped; None when the text has no such part."""
    if part == "whole":
        return text.strip()
    if part == "answer-tag":
        found = _TAG.findall(text)
    elif part == "last-number":
        found = _NUMBER.findall(text)
    else:
        found = [line for line in text.splitlines() if line.strip()]
    if not found:
        return None
    return str(found[0] if part == "first-line" else found[-1]).strip()


def contains(text: str, answer: str) -> bool:
    """Whether the text has the answer as a word of its own: `6` stands in "is 6." but not in "16", "6.5" or "-6"."""
    return bool(answer) and re.search(rf"(?<![\w.-]){re.escape(answer)}(?!\w|[.,]\d)", text) is not None


def _origin(task: Task) -> Origin:
    try:
        return Origin.from_metadata(task.metadata)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"the task does not say which reasoning-gym generator made it ({type(error).__name__}: {error})",
            where=f"task {task.id!r}",
            mend="use this reward with tasks of `data: {use: reasoning-gym}`",
        ) from error


@lru_cache(maxsize=1024)
def _entry(origin: Origin, expected: str, task: str) -> dict[str, Any]:
    entry = origin.entry()
    if digest(entry["question"]) != expected:
        raise RunError(
            f"reasoning-gym's {origin.generator!r} no longer makes the question that this task was made from",
            where=f"task {task!r}",
            mend="install the version of reasoning-gym that generated these tasks",
        )
    return entry
