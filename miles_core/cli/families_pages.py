"""What `miles families list` and `check` do and print."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

from miles_core.cli.output import flush, remark, say, say_json, table
from miles_core.errors import EXIT_DONE, EXIT_FAILED, MilesError, RequestError
from miles_core.host.activate import open_registry
from miles_core.host.registry import Registry
from miles_core.recipe.resolved import Plan
from miles_core.testing.families.offline import check_offline
from miles_core.testing.families.report import FamilyReport, Tally
from miles_core.testing.families.subject import Subject, all_subjects, find_subject
from miles_core.testing.kit.source import package_folder, records_of_runs

HEAD = ("family", "append-only", "whole", "parity", "read back", "any tokens", "live", "evidence")
COLUMNS = ("append-only", "whole", "parity", "read-back", "any-tokens", "live")


def list_families(plugins: Sequence[str], *, as_json: bool) -> int:
    subjects = all_subjects(_registry(plugins))
    rows = []
    for subject in subjects:
        plugin, component = subject.registered.plugin, subject.registered.component
        verified = subject.component in records_of_runs(package_folder(plugin))
        evidence = "verified" if verified else "not-verified"
        rows.append((component.name, subject.registered.kind, evidence, plugin.title, component.summary))
    if as_json:
        keys = ("name", "kind", "evidence", "plugin", "summary")
        say_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        table(("family", "kind", "evidence", "from", "summary"), rows)
    return EXIT_DONE


def check_families(
    names: Sequence[str],
    *,
    path: str | None,
    engine: str | None,
    turns: int,
    conversations: int,
    settings: Sequence[str],
    plugins: Sequence[str],
    record: bool,
    as_json: bool,
) -> int:
    """Raises RequestError for an unknown family, options that it does not take, or a recipe of another model."""
    if path is not None and len(names) > 1:
        raise RequestError("one checkpoint is of one family", where="--path", mend="check one family at a time")
    registry = _registry(plugins)
    subjects = [find_subject(registry, name, path, settings) for name in names]
    plan = None if engine is None else _plan_of(engine, subjects, plugins)
    reports = []
    for subject in subjects:
        with redirect_stdout(sys.stderr):  # what plugins and libraries print is not this command's answer
            report = _checked(subject, conversations, plan, turns, needed=path is not None)
        reports.append(report)
        if record:
            remark(f"record written: {_write(subject, report)}")
    if as_json:
        say_json([report.to_json() for report in reports])
    else:
        _page(reports)
    return EXIT_DONE if all(report.good for report in reports) else EXIT_FAILED


def _registry(plugins: Sequence[str]) -> Registry:
    return open_registry(list(plugins) or None)


def _checked(subject: Subject, conversations: int, plan: Plan | None, turns: int, *, needed: bool) -> FamilyReport:
    tallies: dict[str, Tally] = {}
    absent = ""
    try:
        with subject.renderer() as renderer:
            tallies = check_offline(renderer, conversations)
    except MilesError as error:
        if needed:
            raise
        absent = str(error.problems[0].what)
    if plan is not None:
        from miles_core.testing.families.live import check_live

        tallies["live"] = check_live(plan, turns)
    plugin = subject.registered.plugin
    source = "the checkpoint given" if subject.given else json.dumps(dict(subject.options))
    name = subject.registered.component.name
    return FamilyReport(
        name, subject.component, plugin.distribution, plugin.version, source, tallies, absent, subject.stand_in
    )


def _plan_of(engine: str, subjects: Sequence[Subject], plugins: Sequence[str]) -> Plan:
    from miles_core.host.request import read_request
    from miles_core.recipe.catalog import find_recipe
    from miles_core.recipe.plan import load_plan

    request = read_request(list(plugins), no_plugins=False, environ=os.environ, folder=Path())
    plan, _ = load_plan(find_recipe(engine), (), request)
    names = {subject.registered.component.name for subject in subjects}
    used = None if plan.model is None else plan.model.name
    if names != {used}:
        raise RequestError(
            f"the recipe's model is {used!r}, and {', '.join(sorted(names))} is to be checked",
            where=engine,
            mend=f"check {used}, or name a recipe with `model: {{use: {min(names)}}}`",
        )
    return plan


def _page(reports: Sequence[FamilyReport]) -> None:
    table(HEAD, [_row(report) for report in reports])
    for report in reports:
        say("")
        say(f"{report.component}  {report.distribution} {report.version}, tried with {report.source}")
        if report.why:
            say(f"  not verified: {report.why}")
        for name, tally in report.tallies.items():
            if tally.failed:
                say(f"  FAIL {name}: {tally.first}")
            for why, count in tally.skipped.items():
                say(f"  {name}: {count} not compared: {why}")
            for why, count in tally.refused.items():
                say(f"  {name}: {count} refused: {why}")
    flush()


def _row(report: FamilyReport) -> tuple[str, ...]:
    cells = [str(report.tallies.get(name, Tally())) for name in COLUMNS]
    if report.tallies and cells[2] == "-":
        cells[2] = "no template"
    return (report.name, *cells, report.evidence)


def _write(subject: Subject, report: FamilyReport) -> Path:
    """Put the record into the package. Raises RequestError when it is installed as a copy."""
    plugin = subject.registered.plugin
    folder = package_folder(plugin)
    if folder is None or not plugin.editable:
        raise RequestError(
            f"{plugin.title} is installed as a copy, and a record belongs into its source",
            where=plugin.location,
            mend="pip install --no-build-isolation --no-deps -e FOLDER, then check again",
        )
    file = folder / "records" / f"{report.name}.evidence.json"
    file.parent.mkdir(exist_ok=True)
    proven = [report.component] if report.evidence == "verified" else []
    body = {"format": 1, "command": "miles families check", "components": proven, **report.to_json()}
    file.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return file
