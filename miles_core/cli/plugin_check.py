"""`miles plugins check`: the conformance kit on a plugin, as a page or as JSON, and its record for listings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from miles_core.cli.output import flush, remark, say, say_json
from miles_core.errors import EXIT_DONE, EXIT_FAILED, RequestError
from miles_core.testing.kit.check import CheckResult, Finding, Grade
from miles_core.testing.kit.grades import GRADES, Report, count
from miles_core.testing.kit.record import make_record, record_file
from miles_core.testing.kit.remarks import remarks
from miles_core.testing.kit.run import Examination, check_all, examine

WORDS = {
    CheckResult.PASSED: "ok",
    CheckResult.FAILED: "FAIL",
    CheckResult.SKIPPED: "skip",
    CheckResult.INAPPLICABLE: "-",
}


def check_plugin(plugin: str, *, level: str | None, record: bool, as_json: bool, verbose: bool = False) -> int:
    """Check it and print what is to be mended and the sum, or (`verbose`) every check. 0: no check failed, or the grade
    reaches `level`; else 1.

    Raises RequestError when it is not installed or the level is none, PluginError when it does not load.
    """
    wanted = _grade(level)
    reports, told = [], []
    for examination in examine(plugin):
        page = None if as_json else _Page(examination, verbose)
        report = check_all(examination, page.tell if page else lambda _: None)
        more = remarks(examination)
        if page:
            page.close(report, more)
        if record:
            written = _write(examination, report)
            remark(f"record written: {written}")
        reports.append(report)
        told.append({**report.to_json(), "remarks": list(more)})
    if as_json:
        say_json({"plugins": told})
    good = all(report.reaches(wanted) if wanted else not report.failures for report in reports)
    return EXIT_DONE if good else EXIT_FAILED


class _Page:
    """What a person reads while the checks go on: what is to be mended, or everything."""

    def __init__(self, examination: Examination, verbose: bool) -> None:
        say(examination.plugin.title)
        self._verbose = verbose
        self._component: str | None = None

    def tell(self, finding: Finding) -> None:
        if not self._verbose and finding.result not in (CheckResult.FAILED, CheckResult.SKIPPED):
            return
        if finding.component != self._component:
            self._component = finding.component
            say(f"\n{finding.component or 'the plugin as a whole'}")
        name = finding.check.id.partition("/")[2]
        say(f"  {WORDS[finding.result]:<4}  {finding.check.grade.value:<6}  {name:<34}  {finding.check.promise}")
        if finding.detail and finding.result in (CheckResult.FAILED, CheckResult.SKIPPED):
            say(f"        {finding.detail}")
        if finding.mend:
            say(f"        mend: {finding.mend}")
        flush()

    def close(self, report: Report, more: Sequence[str]) -> None:
        counted = count(report.findings)
        say("")
        for name, evidence in report.evidence().items():
            say(f"evidence  {name}: {evidence}")
        say(f"checks    {counted[CheckResult.PASSED]} passed, {counted[CheckResult.FAILED]} failed, "
            f"{counted[CheckResult.SKIPPED]} could not be tried")  # fmt: skip
        say(f"grade     {report.grade.value if report.grade else 'none'}")
        if report.next_grade:
            missing = report.missing(report.next_grade)
            names = ", ".join(f"{f.check.id}{f' of {f.component}' if f.component else ''}" for f in missing)
            say(f"          {report.next_grade.value} needs: {names}")
        for each in more:
            say(f"remark    {each}")


def _grade(level: str | None) -> Grade | None:
    if level is None:
        return None
    if level not in GRADES:
        raise RequestError(f"there is no grade {level!r}", mend=f"say one of: {', '.join(GRADES)}")
    return Grade(level)


def _write(examination: Examination, report: Report) -> Path:
    """Put the record into the package. Raises RequestError when it is installed as a copy."""
    file = record_file(examination.plugin)
    if file is None or not examination.plugin.editable:
        raise RequestError(
            f"{examination.plugin.title} is installed as a copy, and a record belongs into its source",
            where=examination.plugin.location,
            mend="pip install --no-build-isolation --no-deps -e FOLDER, then check again",
        )
    components = tuple(each.component for each in examination.components)
    file.write_text(make_record(report, components).text(), encoding="utf-8")
    return file
