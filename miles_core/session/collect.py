"""From nodes to the sequences that are trained on."""

from __future__ import annotations

from collections.abc import Sequence as Several

import numpy as np

from miles_core.session.tree import Node
from miles_core.types.sequence import NO_VERSION, Array, Sequence, Span


def sequences(leaves: Several[Node]) -> tuple[Sequence, ...]:
    """One sequence for each leaf: every token of its path as it was, sampled where the model sampled it.

    A turn that several leaves share is learned from in the first of them alone; in the others its tokens are context.
    Leaves whose own turns were all learned from before are left out.
    """
    learned: set[int] = set()
    made = []
    for leaf in leaves:
        path = leaf.path
        fresh = {node.number for node in path} - learned
        if fresh:
            made.append(_sequence(path, fresh))
            learned |= fresh
    return tuple(made)


def _sequence(path: Several[Node], learned: set[int]) -> Sequence:
    length = path[-1].stop
    tokens = path[-1].tokens
    sampled = np.zeros(length, np.bool_)
    logprobs = np.zeros(length, np.float32)
    versions = np.full(length, NO_VERSION, np.int32)
    spans: list[Span] = []
    for node in path:
        if node.number not in learned:
            continue
        begin = node.first_sampled
        sampled[begin : node.stop] = True
        logprobs[begin : node.stop] = node.sampled.logprobs
        for span in node.sampled.spans:
            start, stop = begin + span.start, begin + span.stop
            versions[start:stop] = span.version
            spans.append(
                Span(
                    start,
                    stop,
                    span.version,
                    node.sampled.engine,
                    node.sampled.request,
                    node.turn,
                    node.sampled.temperature,
                )
            )
    return Sequence(tokens, sampled, logprobs, versions, tuple(spans), _routing(path), path[-1].all_images)


def _routing(path: Several[Node]) -> Array | None:
    rows = [node.sampled.routing for node in path if node.sampled.routing is not None]
    return np.concatenate(rows) if rows else None
