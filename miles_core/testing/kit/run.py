"""The runner: finds a plugin, activates it alone, tries every check on it, and says what came of each."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import pkgutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from miles_core.contracts.capabilities import STAND_IN
from miles_core.contracts.component import KINDS
from miles_core.errors import RequestError
from miles_core.host.activate import open_registry
from miles_core.host.decide import NAMING_CONVENTION, matching
from miles_core.host.metadata import normalise
from miles_core.host.registry import Registered, Registry
from miles_core.host.scan import Index, InstalledPlugin, scan
from miles_core.testing.kit.apart import keep_environment
from miles_core.testing.kit.check import (
    CHECKS,
    EVERY_KIND,
    Check,
    CheckFailed,
    CheckInapplicable,
    CheckResult,
    CheckSkipped,
    Finding,
)
from miles_core.testing.kit.grades import Report
from miles_core.testing.kit.logs import kept_back
from miles_core.testing.kit.materials import workplace
from miles_core.testing.kit.source import package_folder, plugins_of_folder, records_of_runs, source_folder
from miles_core.testing.kit.subject import ComponentSubject, PluginSubject
from miles_core.testing.kit.timing import Hung, limited

CHECK_SECONDS = 60.0
VALID, BUILDS, PROTOCOL = "component/options-model", "component/builds-in-a-worker", "component/keeps-the-protocol"
"""Gates of every component. Who does not pass one is not tried further: the failure is one, and this process stays
whole."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One check to try on one component, or on the plugin as a whole (`registered` is None)."""

    check: Check
    registered: Registered | None = None

    @property
    def component(self) -> str:
        """`kind.name`, "" for the plugin as a whole."""
        return f"{self.registered.kind}.{self.registered.component.name}" if self.registered else ""

    @property
    def example(self) -> Mapping[str, Any]:
        return self.registered.component.example if self.registered else {}


@dataclass(slots=True)
class Examination:
    """A plugin that is being checked. `seconds` is the limit of each check."""

    plugin: InstalledPlugin
    registry: Registry
    source: Path | None
    seconds: float = CHECK_SECONDS
    _stopped_by: dict[str, str] = field(default_factory=dict)

    @property
    def components(self) -> tuple[Registered, ...]:
        """What the plugin provides, by kind and name."""
        return tuple(each for kind in KINDS for each in self.registry.components(kind) if each.plugin == self.plugin)

    def trials(self) -> list[Trial]:
        """Everything to try, in the order of the page: the plugin, then each component."""
        checks = all_checks()
        trials = [Trial(check) for check in checks if check.kind == ""]
        of_all = sorted((check for check in checks if check.kind == EVERY_KIND), key=_gates_first)
        for registered in self.components:
            trials += [Trial(check, registered) for check in of_all]
            trials += [Trial(check, registered) for check in checks if check.kind == registered.kind]
        return trials

    def attempt(self, trial: Trial) -> Finding:
        """Try it in a fresh folder. Only Ctrl-C passes; what the plugin prints goes to standard error."""
        if failed := self._stopped(trial):
            return Finding(trial.check, trial.component, CheckResult.SKIPPED, f"not tried, since {failed} failed")
        started = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="miles-kit-") as scratch, contextlib.redirect_stdout(sys.stderr):
            folder = Path(scratch) / "folder"
            folder.mkdir()
            with workplace(Path(scratch) / "here", trial.example), kept_back() as log:
                result, detail, mend = self._try(trial, folder)
            if result is CheckResult.FAILED:
                log.show()
        finding = Finding(trial.check, trial.component, result, detail, mend, time.perf_counter() - started)
        if trial.check.gate and result is CheckResult.FAILED:
            self._stopped_by[trial.component] = trial.check.id
        return finding

    def report(self, findings: tuple[Finding, ...]) -> Report:
        names = {f"{each.kind}.{each.component.name}": each.component for each in self.components}
        stand_ins = frozenset(name for name, component in names.items() if STAND_IN in component.capabilities)
        return Report(self.plugin, tuple(names), findings, records_of_runs(package_folder(self.plugin)), stand_ins)

    def _stopped(self, trial: Trial) -> str:
        """The failed check without which this one makes no sense; "" when there is none."""
        failed = self._stopped_by.get(trial.component, "")
        needs_object = trial.check.kind != EVERY_KIND or trial.check.id == PROTOCOL
        concerned = failed == VALID or needs_object
        return failed if concerned and trial.check.id != failed else ""

    def _try(self, trial: Trial, folder: Path) -> tuple[CheckResult, str, str]:
        try:
            with limited(self.seconds + 2):
                _call(trial.check, self._subject(trial, folder), self.seconds)
        except CheckFailed as failure:
            return CheckResult.FAILED, failure.detail, failure.mend
        except CheckSkipped as skipped:
            return CheckResult.SKIPPED, str(skipped), ""
        except CheckInapplicable as reason:
            return CheckResult.INAPPLICABLE, str(reason), ""
        except Hung:
            return CheckResult.FAILED, f"it hangs: no end after {self.seconds:g} s", "find what waits, and bound it"
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin may raise anything, SystemExit included
            detail = f"raised {type(error).__name__}: {error}{self._place(error)}"
            return CheckResult.FAILED, detail, f"it must not raise here: {trial.check.promise}"
        return CheckResult.PASSED, "", ""

    def _subject(self, trial: Trial, folder: Path) -> PluginSubject | ComponentSubject:
        if trial.registered is None:
            return PluginSubject(self.plugin, self.registry, self.components, folder, self.source)
        return ComponentSubject(self.plugin, self.registry, trial.registered, folder, self.source)

    def _place(self, error: BaseException) -> str:
        """Where in the plugin's code it was raised, else where at all."""
        frames = traceback.extract_tb(error.__traceback__)
        own = str(package_folder(self.plugin) or "\0")
        of_plugin = [frame for frame in frames if frame.filename.startswith(own)]
        frame = (of_plugin or frames)[-1]
        return f" ({frame.filename}:{frame.lineno})"


def examine(target: str, *, seconds: float = CHECK_SECONDS, index: Index | None = None) -> list[Examination]:
    """The plugins that `target` means, each activated alone: a name, a distribution (which may have several), or a
    source folder. Raises RequestError when it is not installed, PluginError when it does not load."""
    index = scan() if index is None else index
    keep_environment()
    folder = Path(target)
    given = folder.resolve() if (folder / "pyproject.toml").is_file() or "/" in target or target == "." else None
    plugins = plugins_of_folder(given, index) if given else _named(target, index)
    for plugin in plugins:
        installed_from = source_folder(plugin)
        if given and installed_from and installed_from.resolve() != given:
            raise RequestError(
                f"{plugin.distribution} is installed from {installed_from}",
                where=str(given),
                mend=f"pip install --no-build-isolation --no-deps -e {given}",
            )
    return [
        Examination(plugin, _alone(plugin, index, seconds), given or source_folder(plugin), seconds)
        for plugin in plugins
    ]


def _alone(plugin: InstalledPlugin, index: Index, seconds: float) -> Registry:
    """The core and this plugin. One whose import does not end is a PluginError, as one that raises is."""
    with limited(seconds):
        return open_registry([_qualified(plugin)], index)


def check_all(examination: Examination, told: Callable[[Finding], None] = lambda _: None) -> Report:
    """Try everything; `told` hears of each finding as it is made."""
    findings = []
    for trial in examination.trials():
        findings.append(examination.attempt(trial))
        told(findings[-1])
    return examination.report(tuple(findings))


def all_checks() -> tuple[Check, ...]:
    """Every check of the kit, in a fixed order."""
    for name in _modules():
        importlib.import_module(name)
    return tuple(CHECKS)


def _modules() -> Iterator[str]:
    for room in ("of_plugin", "of_component", "kinds"):
        package = importlib.import_module(f"miles_core.testing.kit.{room}")
        yield from sorted(module.name for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."))


def _named(target: str, index: Index) -> list[InstalledPlugin]:
    """One plugin, or all those of one distribution; who is unknown or ambiguous is left to the host, which says so."""
    found = matching(index.plugins, target)
    if not found:
        _refuse_uninstalled_folder(target)
    if len({plugin.distribution for plugin in found}) == 1:
        return found
    registry = open_registry([target], index)
    return [plugin for plugin in registry.plugins if plugin in matching(index.plugins, target)]


def _refuse_uninstalled_folder(target: str) -> None:
    """Someone has just made it, and not installed it: what an index may have of this name is not meant."""
    folder = Path(NAMING_CONVENTION + normalise(target).removeprefix(NAMING_CONVENTION))
    if (folder / "pyproject.toml").is_file():
        raise RequestError(
            f"{folder} lies here, and is not installed",
            where=str(folder),
            mend=f"pip install --no-build-isolation --no-deps -e {folder}",
        )


def _gates_first(check: Check) -> int:
    gates = (VALID, BUILDS, PROTOCOL)
    return gates.index(check.id) if check.id in gates else len(gates)


def _qualified(plugin: InstalledPlugin) -> str:
    return f"{plugin.distribution}:{plugin.name}"


def _call(check: Check, subject: PluginSubject | ComponentSubject, seconds: float) -> None:
    if inspect.iscoroutinefunction(check.run):
        asyncio.run(_bounded(check, subject, seconds))
    else:
        check.run(subject)


async def _bounded(check: Check, subject: PluginSubject | ComponentSubject, seconds: float) -> None:
    doing = check.run(subject)
    assert doing is not None
    try:
        async with asyncio.timeout(seconds) as limit:
            await doing
    except TimeoutError:
        if limit.expired():
            raise Hung from None
        raise
