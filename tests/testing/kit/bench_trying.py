"""Trying a check of engines and trainers: the made-up one stands in the toy plugin's place, or beside no model."""

from __future__ import annotations

from typing import Any

from trying import PLUGIN, find_check, path_of

from miles_core import components
from miles_core.contracts.component import Component
from miles_core.host.registry import Registered, Registry
from miles_core.host.scan import Index
from miles_core.testing.kit.check import CheckResult, Finding
from miles_core.testing.kit.run import Examination, Trial
from miles_core.testing.toy import plugin as toy

CORE = PLUGIN._replace(name="core")


def try_on_bench(check_id: str, factory: Any, *, own_model: bool = True) -> Finding:
    """What one check finds of an engine or trainer with the toy's options. `own_model`: the toy's model and trainer
    belong to the same plugin, so they are what it is tried with; else it is the tiny Llama."""
    kind = check_id.partition("/")[0]
    (pattern,) = toy.miles_engines() if kind == "engine" else toy.miles_trainers()
    made_up = Registered(
        kind, Component("made-up", path_of(factory), pattern.options, "made up", example=pattern.example), PLUGIN
    )
    owner = PLUGIN if own_model else CORE
    beside = [Registered("model", each, owner) for each in toy.miles_model_specs()]
    beside += [Registered("trainer", each, owner) for each in toy.miles_trainers()]
    beside += [Registered("transport", each, CORE) for each in components.miles_transports()]
    beside += [Registered("precision", each, CORE) for each in components.miles_precisions()]
    registry = Registry(Index((PLUGIN, CORE)), [PLUGIN, CORE], [made_up, *beside], {})
    return Examination(PLUGIN, registry, None, 30.0).attempt(Trial(find_check(check_id), made_up))


def assert_caught(finding: Finding) -> None:
    """It failed for a reason that a person can act on, and not by an accident of the kit."""
    assert finding.result is CheckResult.FAILED, (finding.result, finding.detail)
    assert finding.detail and finding.mend
    assert "miles_core/testing/kit" not in finding.detail, finding.detail


def assert_passes(finding: Finding) -> None:
    assert finding.result in (CheckResult.PASSED, CheckResult.INAPPLICABLE), (finding.check.id, finding.detail)
