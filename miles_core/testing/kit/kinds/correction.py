"""Checks of the kind `correction`. See `contracts.learning.Correction`."""

from __future__ import annotations

from typing import Any

import numpy as np

from miles_core.testing.kit.check import Grade, check, expect
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.testing.kit.tensors import Tensors, check_terms, tensors_of
from miles_core.types.sequence import Array

KIND = "correction"
LOG_RATIO = np.array([0.0, 0.05, -0.1, 0.7, -0.9, 1.5, -3.0, 0.01, 4.0, -0.4], np.float32)
ROWS = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
for _shared in (LOG_RATIO, ROWS):
    _shared.setflags(write=False)


@check(KIND, Grade.SILVER, "it gives one finite weight, and one number of each metric, for every token")
def gives_a_weight_for_every_token(subject: ComponentSubject) -> None:
    tensors, component = tensors_of(subject), subject.build()
    check_terms(_correct(component, tensors, LOG_RATIO, ROWS), tensors, len(LOG_RATIO), "correct")


@check(KIND, Grade.GOLD, "where engine and trainer agree, the weight is 1")
def leaves_agreement_alone(subject: ComponentSubject) -> None:
    tensors, component = tensors_of(subject), subject.build()
    weights = tensors.array(_correct(component, tensors, np.zeros(10, np.float32), ROWS).values)
    expect(
        np.allclose(weights, 1.0, atol=1e-6),
        f"for log ratios of 0 the weights are {weights[:3].round(4).tolist()}...",
        "weigh with exp(log_ratio), or with something that is 1 where it is 0: else the learning rate changes unseen",
    )


@check(KIND, Grade.GOLD, "weights are detached, and what it is given stays as it was")
def is_detached_and_changes_nothing(subject: ComponentSubject) -> None:
    tensors, component = tensors_of(subject), subject.build()
    log_ratio, row = tensors.of(LOG_RATIO), tensors.of(ROWS)
    terms = component.correct(log_ratio, row)
    expect(
        not tensors.attached(terms.values) and not tensors.attached(log_ratio),
        "the weights carry a gradient",
        "compute them from log_ratio.detach(), with no parameter of your own: a correction weighs, it is not learned",
    )
    unchanged = np.array_equal(tensors.array(log_ratio), LOG_RATIO) and np.array_equal(tensors.array(row), ROWS)
    expect(unchanged, "log_ratio or row changed during the call", "use no operation in place on the inputs")


@check(KIND, Grade.GOLD, "a row's weights are the same in every micro-batch, and each time")
def does_not_depend_on_the_micro_batch(subject: ComponentSubject) -> None:
    tensors, component = tensors_of(subject), subject.build()
    together = tensors.array(_correct(component, tensors, LOG_RATIO, ROWS).values)
    again = tensors.array(_correct(component, tensors, LOG_RATIO, ROWS).values)
    expect(
        np.array_equal(together, again),
        "two calls with the same tensors gave different weights",
        "keep no state between calls and draw no random numbers",
    )
    alone = []
    for place in range(3):
        own = LOG_RATIO[np.equal(ROWS, place)]
        alone.append(tensors.array(_correct(component, tensors, own, np.zeros(len(own), np.int64)).values))
    expect(
        np.allclose(np.concatenate(alone), together, rtol=1e-5, atol=1e-6),
        "rows that are corrected one by one get other weights than rows corrected together",
        "compute a token's weight from its own row only: micro-batches of any size must add up to the same step",
    )


def _correct(component: Any, tensors: Tensors, log_ratio: Array, row: Array) -> Any:
    return component.correct(tensors.of(log_ratio), tensors.of(row))
