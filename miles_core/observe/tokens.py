"""The token-level view of a few trajectories: every token a span that says where it came from."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

from miles_core.observe.pictures import Pictures
from miles_core.observe.trajectories import read_file
from miles_core.types.sequence import Sequence as TokenSequence
from miles_core.types.trajectory import Disposition, Group, Trajectory

Decode = Callable[[int], str]

_STEM = re.compile(r"(?P<series>.*?)-?(?P<number>\d+)\Z")
_MOST_TOKENS = 2000
_SHADES = 8


@dataclass(frozen=True, slots=True)
class Sample:
    """One trajectory worth showing, and why. `folder` is that of its file, where its images lie."""

    title: str
    group: Group
    trajectory: Trajectory
    folder: Path | None = None


def notable(folder: Path) -> list[Sample]:
    """The best, the median and the worst trained trajectory of the last step, and of each evaluation the attempt
    before and after at the task whose reward changed most."""
    series: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("[!.]*.parquet"), key=_number):
        series.setdefault(_series(path), []).append(path)
    samples: list[Sample] = []
    for name, paths in sorted(series.items()):
        last = list(read_file(paths[-1], pixels=False))
        samples += _extremes(name, _number(paths[-1]), last)
        if len(paths) > 1:
            samples += _changed_most(name, list(read_file(paths[0], pixels=False)), last)
    return [replace(sample, folder=folder) for sample in samples]


def sample_html(sample: Sample, decode: Decode | None) -> str:
    """One trajectory as a card: task, reward, status, and the tokens of each of its sequences."""
    one = sample.trajectory
    facts = [f"task {sample.group.task.id}", f"group {sample.group.number}", f"trajectory {one.id}", one.status.value]
    facts += [] if sample.group.task.answer is None else [f"expected answer {sample.group.task.answer!r}"]
    facts += [f"{name} {'no verdict' if score is None else f'{score.value:g}'}" for name, score in one.scores.items()]
    reward = "no verdict" if one.reward is None else f"{one.reward:.4g}"
    pictures = Pictures(sample.folder)
    rows = "".join(_sequence_html(sequence, decode, pictures) for sequence in one.sequences)
    return (
        f'<article class="sample"><header><h3>{escape(sample.title)}</h3><b>reward {escape(reward)}</b></header>'
        f'<p class="facts">{escape(" · ".join(facts))}</p>{rows or "<p>No tokens.</p>"}</article>'
    )


def _sequence_html(sequence: TokenSequence, decode: Decode | None, pictures: Pictures) -> str:
    shown = min(len(sequence), _MOST_TOKENS)
    whole = {span.start: pictures.html(span) for span in sequence.images}
    hidden = {place for span in sequence.images for place in range(span.start, span.stop)}
    spans = "".join(
        whole.get(index, "") if index in hidden else _token_html(sequence, index, decode) for index in range(shown)
    )
    rest = f"<p>{len(sequence) - shown} more tokens are not shown.</p>" if shown < len(sequence) else ""
    return f'<div class="tokens">{spans}</div>{rest}'


def _token_html(sequence: TokenSequence, index: int, decode: Decode | None) -> str:
    token = int(sequence.tokens[index])
    text = f"{token} " if decode is None else decode(token)
    tip = [f"token {token}", f"position {index}"]
    shade = "masked"
    if sequence.sampled[index]:
        shade = "p0"
        if sequence.logprobs is not None:
            logprob = float(sequence.logprobs[index])
            shade = f"p{_shade(logprob)}"
            tip += ["sampled", f"log-prob {logprob:.4f}", f"probability {math.exp(logprob):.3g}"]
            tip.append(f"weights version {int(sequence.versions[index])}")
        else:
            tip.append("learned from, sampled by nobody (a demonstration)")
    else:
        tip.append("not sampled: masked in the loss")
    visible = escape(text or "∅").replace("\n", "⏎\n")
    return f'<span class="{shade}" title="{escape(chr(10).join(tip))}">{visible}</span>'


def _shade(logprob: float) -> int:
    """0 for a certain token, up to the darkest for one of probability 1/128 and less."""
    return min(int(-logprob / math.log(2) + 0.5), _SHADES - 1)


def _extremes(name: str, number: int, entries: Sequence[tuple[Group, dict[str, Disposition]]]) -> list[Sample]:
    trained = [
        (group, one)
        for group, dispositions in entries
        for one in group.trajectories
        if dispositions[one.id] is Disposition.TRAINED and one.reward is not None and one.sequences
    ]
    if not trained:
        return []
    ranked = sorted(trained, key=lambda pair: (pair[1].reward or 0.0, -pair[0].number, -pair[1].index))
    chosen = {"best": ranked[-1], "median": ranked[len(ranked) // 2], "worst": ranked[0]}
    taken: dict[str, tuple[str, Group, Trajectory]] = {}
    for which, (group, one) in chosen.items():
        title = f"{taken[one.id][0]} and {which}" if one.id in taken else which
        taken[one.id] = (title, group, one)
    return [Sample(f"{title.capitalize()} of {name} {number}", group, one) for title, group, one in taken.values()]


def _changed_most(
    name: str,
    before: Sequence[tuple[Group, dict[str, Disposition]]],
    after: Sequence[tuple[Group, dict[str, Disposition]]],
) -> list[Sample]:
    earlier, later = _evaluated(before), _evaluated(after)
    shared = sorted(earlier.keys() & later.keys())
    if not shared:
        return []
    task = max(shared, key=lambda key: abs((later[key][1].reward or 0.0) - (earlier[key][1].reward or 0.0)))
    return [
        Sample(f"{name}, before training", *earlier[task]),
        Sample(f"{name}, after training (the task that changed most)", *later[task]),
    ]


def _evaluated(entries: Sequence[tuple[Group, dict[str, Disposition]]]) -> dict[str, tuple[Group, Trajectory]]:
    """Task id to its first evaluated attempt that has a reward."""
    found: dict[str, tuple[Group, Trajectory]] = {}
    for group, dispositions in entries:
        for one in group.trajectories:
            if dispositions[one.id] is Disposition.EVALUATION and one.reward is not None:
                found.setdefault(group.task.id, (group, one))
    return found


def _series(path: Path) -> str:
    match = _STEM.match(path.stem)
    return match["series"] if match else path.stem


def _number(path: Path) -> int:
    match = _STEM.match(path.stem)
    return int(match["number"]) if match else 0
