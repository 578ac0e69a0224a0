"""A plan for people and for programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from miles_core.contracts.component import ComponentRef
from miles_core.host.verdict import DISABLED
from miles_core.recipe.resolved import LockedPlugin, PhasePlan, Plan, Source
from miles_core.recipe.written import leaves
from miles_core.recipe.yaml_text import dotted, strict_json

_SINGLE = (
    "data", "agent", "matcher", "generator", "rollout", "schedule", "buffer", "staleness", "advantage", "loss",
    "correction",
)  # fmt: skip


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """JSON data of the whole plan: the resolved recipe, the source of each value, cards, arithmetic, components."""
    data = {
        "name": plan.name,
        "file": str(plan.file) if plan.file is not None else None,
        "seed": plan.seed,
        "steps": plan.steps,
        "plugins": [{**asdict(plugin), "enabled_by": _enabled_by(plan, plugin)} for plugin in plan.plugins],
        "decision": [verdict.to_json() for verdict in plan.verdicts],
        "recipe": dict(plan.recipe),
        "sources": {path: {"kind": source.kind, "where": source.where} for path, source in plan.sources.items()},
        "algorithm_card": [{"aspect": aspect, "meaning": meaning} for aspect, meaning in plan.card],
        "arithmetic": [{"what": what, "number": number} for what, number in plan.arithmetic],
        "model": asdict(plan.model_card) if plan.model_card is not None else None,
        "components": {
            name: _component(getattr(plan, name))
            for name in ("model", "engine", "trainer", "transport", "precision", "runtime")
        },
        "phases": [_phase(phase) for phase in plan.phases],
        "capabilities": [
            {"kind": kind, "component": name, "capabilities": list(words)} for kind, name, words in plan.capabilities
        ],
        "warnings": list(plan.warnings),
    }
    return {key: strict_json(value) for key, value in data.items()}


def _phase(phase: PhasePlan) -> dict[str, Any]:
    return {
        "name": phase.name,
        "steps": phase.steps,
        "sampling": asdict(phase.sampling),
        "components": {
            **{name: _component(getattr(phase, name)) for name in _SINGLE},
            "rewards": [
                {"name": each.name, "weight": each.weight, **(_component(each.ref) or {})} for each in phase.rewards
            ],
            "middleware": [_component(each) for each in phase.middleware],
            "filters": [_component(each) for each in phase.filters],
            "evaluate": [_component(each) for each in phase.evaluators],
        },
    }


def _component(ref: ComponentRef | None) -> dict[str, Any] | None:
    if ref is None:
        return None
    return {
        "kind": ref.kind,
        "component": ref.name,
        "distribution": ref.distribution,
        "version": ref.version,
        "factory": ref.factory,
        "options": dict(ref.options),
    }


def plan_lines(plan: Plan) -> list[str]:
    """The plan as plain text: every value with where it came from, the algorithm card, the arithmetic, warnings."""
    lines = [f"plan of {plan.name}" + (f" ({plan.file})" if plan.file is not None else "")]
    lines += ["", "plugins", *_plugins(plan), "", "values"]
    lines += _columns(
        [(dotted(parts), _text(value), _origin(plan, dotted(parts))) for parts, value in leaves(plan.recipe)]
    )
    if plan.model_card is not None:
        card = plan.model_card
        facts = asdict(card) | {"parameters": f"{card.parameters:,}"}
        lines += ["", "model", *_columns([(name, _text(value)) for name, value in facts.items()])]
    if plan.card:
        lines += ["", "algorithm card", *_columns(list(plan.card))]
    lines += ["", "arithmetic", *_columns([(what, f"{number:,}") for what, number in plan.arithmetic])]
    if plan.capabilities:
        rows: list[tuple[str, ...]] = [(f"{kind} {name}", ", ".join(words)) for kind, name, words in plan.capabilities]
        lines += ["", "capabilities", *_columns(rows)]
    if plan.warnings:
        lines += ["", "warnings", *(f"  {warning}" for warning in plan.warnings)]
    return lines


def _plugins(plan: Plan) -> list[str]:
    """Those in use with who enabled each, then those that somebody keeps out."""
    rows: list[tuple[str, ...]] = [
        (each.name, _package(each), _state(each.editable), _enabled_by(plan, each)) for each in plan.plugins
    ]
    for verdict in plan.verdicts:
        if verdict.status == DISABLED:
            found = verdict.plugin
            package = f"{found.distribution} {found.version}".strip() if found else "not installed"
            rows.append((verdict.name, package or "research code", "off", verdict.off_because))
    return _columns(rows)


def _package(plugin: LockedPlugin) -> str:
    return f"{plugin.distribution} {plugin.version}".strip() or "research code"


def _enabled_by(plan: Plan, plugin: LockedPlugin) -> str:
    """Who enabled it; research code is used where the recipe names it."""
    for verdict in plan.verdicts:
        found = verdict.plugin
        if found and (found.distribution, found.name) == (plugin.distribution, plugin.name) and verdict.by:
            return verdict.by.where
    return "named by the recipe"


def _state(editable: bool) -> str:
    return "editable" if editable else ""


def _origin(plan: Plan, path: str) -> str:
    source: Source = plan.sources[path]
    if source.kind == "recipe":
        return source.where
    return f"{source.kind}: {source.where}" if source.kind == "default" else source.where


def _text(value: Any) -> str:
    """A value as the recipe would spell it."""
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False, default=str)


def _columns(rows: list[tuple[str, ...]], gap: str = "  ") -> list[str]:
    """Rows in aligned columns; a very wide cell does not push the others away."""
    if not rows:
        return ["  none"]
    widths = [min(max(len(row[column]) for row in rows), 40) for column in range(len(rows[0]))]
    return [
        ("  " + gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip() for row in rows
    ]
