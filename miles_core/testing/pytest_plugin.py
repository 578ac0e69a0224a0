"""`pytest --miles-plugin NAME`: every check of the conformance kit as a test of its own.

pytest imports this module in every project where Miles is installed, so nothing of the kit is imported until the option
is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from miles_core.testing.kit.check import Finding
    from miles_core.testing.kit.run import Examination, Trial

GRADES = ("bronze", "silver", "gold")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("miles", "conformance of Miles plugins")
    group.addoption(
        "--miles-plugin",
        action="append",
        default=[],
        metavar="NAME",
        help="check this plugin: its name, its distribution's, or its source folder; may be given again",
    )
    group.addoption(
        "--miles-grade", choices=GRADES, default="gold", help="the checks of this grade and of the lower ones (gold)"
    )


@pytest.hookimpl(tryfirst=True)  # before -k and -m choose
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    names = config.getoption("--miles-plugin")
    if not names:
        return
    from miles_core.errors import MilesError
    from miles_core.testing.kit.run import examine

    grades = GRADES[: GRADES.index(config.getoption("--miles-grade")) + 1]
    try:
        found = [examination for name in dict.fromkeys(names) for examination in examine(name)]
    except MilesError as error:
        raise pytest.UsageError(str(error)) from error
    examinations = {(each.plugin.distribution, each.plugin.name): each for each in found}  # whatever names they go by
    for examination in examinations.values():
        title = f"miles-plugin-{examination.plugin.name}"
        collector: Any = PluginUnderTest.from_parent(session, name=title, nodeid=title)
        for trial in examination.trials():
            if trial.check.grade in grades:
                items.append(CheckItem.of(collector, examination, trial))


class PluginUnderTest(pytest.Collector):
    """What the items of one plugin have in common: its name in their ids."""

    def collect(self) -> list[pytest.Item]:
        return []


class NotKept(Exception):
    """A check failed: shown by its finding, without a traceback."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.detail)
        self.finding = finding


class CheckItem(pytest.Item):
    """One check of one component."""

    examination: Examination
    trial: Trial

    @classmethod
    def of(cls, parent: pytest.Collector, examination: Examination, trial: Trial) -> CheckItem:
        name = f"{trial.check.id}[{trial.component}]" if trial.component else trial.check.id
        item: CheckItem = cls.from_parent(parent, name=name)
        item.examination, item.trial = examination, trial
        return item

    def runtest(self) -> None:
        from miles_core.testing.kit.check import CheckResult

        finding = self.examination.attempt(self.trial)
        if finding.result is CheckResult.FAILED:
            raise NotKept(finding)
        if finding.result in (CheckResult.SKIPPED, CheckResult.INAPPLICABLE):
            pytest.skip(finding.detail)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if not isinstance(excinfo.value, NotKept):
            return super().repr_failure(excinfo, style)
        finding = excinfo.value.finding
        return f"promise: {finding.check.promise}\nseen:    {finding.detail}\nmend:    {finding.mend}"

    def reportinfo(self) -> tuple[Any, int | None, str]:
        return self.path, None, self.nodeid
