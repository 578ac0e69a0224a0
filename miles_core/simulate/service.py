"""What is assumed of engines, trainer and world: every number that a simulation does not work out."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from collections.abc import Sequence as Several
from typing import Any

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from pydantic import ValidationError as Invalid

from miles_core.contracts.options import Options
from miles_core.errors import Problem, RequestError


class Service(Options):
    """Speeds and chances. Times are seconds."""

    seconds_per_token: PositiveFloat = Field(default=0.02, description="of a decoding step of one request alone")
    seconds_per_neighbour: NonNegativeFloat = Field(
        default=0.0002, description="what each further request at the same engine adds to a decoding step"
    )
    slots: PositiveInt = Field(default=64, description="requests that an engine decodes at once; others wait")
    prefill_tokens_per_second: PositiveFloat = Field(default=20_000.0, description="of one engine")
    train_seconds: NonNegativeFloat = Field(default=1.0, description="of a training step, whatever its size")
    train_tokens_per_second: PositiveFloat = Field(
        default=50_000.0, description="of the whole trainer, over prompt and sampled tokens"
    )
    publish_seconds: NonNegativeFloat = Field(default=1.0, description="in which engines and trainer stand still")
    record_seconds: NonNegativeFloat = Field(default=0.0, description="between steps, in which engines go on")
    outside_seconds: NonNegativeFloat = Field(
        default=0.0, description="that each attempt spends outside of engines: tools, environments, rewards"
    )
    solved: float | None = Field(
        default=None, ge=0, le=1, description="chance of reward 1, else 0; by default rewards are spread evenly"
    )
    aborted: float = Field(default=0.0, ge=0, le=1, description="chance that an attempt is lost to infrastructure")
    failed: float = Field(default=0.0, ge=0, le=1, description="chance that an attempt raises")

    def step(self, requests: int) -> float:
        """Seconds of a decoding step of so many requests: a token for each of them."""
        return self.seconds_per_token + self.seconds_per_neighbour * (requests - 1)

    def training(self, tokens: int) -> float:
        """Seconds of a training step."""
        return self.train_seconds + tokens / self.train_tokens_per_second


def read_service(settings: Several[str], measured: Mapping[str, Any]) -> Service:
    """`measured` values, overridden by `key=value` settings. Raises RequestError with every fault."""
    problems: list[Problem] = []
    values = dict(measured)
    for setting in settings:
        key, equals, text = setting.partition("=")
        try:
            values[key] = json.loads(text)
        except json.JSONDecodeError:
            what = f"{key} is {text!r}, expected a number" if equals else "expected key=value"
            problems.append(Problem(what, _where(setting)))
            values.pop(key, None)
    try:
        service = Service.model_validate(values)
    except Invalid as invalid:
        raise RequestError([*problems, *(_problem(error) for error in invalid.errors())]) from None
    if problems:
        raise RequestError(problems)
    return service


def _problem(error: Any) -> Problem:
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] != "extra_forbidden":
        return Problem(f"{key} is {error['input']!r}: {error['msg']}", _where(key))
    near = difflib.get_close_matches(key, Service.model_fields, n=1)
    known = ", ".join(Service.model_fields)
    return Problem(f"{key!r} is not known", _where(key), f"did you mean {near[0]}?" if near else f"one of {known}")


def _where(what: str) -> str:
    return f"--assume {what}"
