"""`conformance.json`: what the kit found, shipped in the package for listings to show. Re-made and compared in CI, so
it holds nothing that differs between machines: no timings, no paths."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from miles_core.contracts.component import Component
from miles_core.hookspecs import HOOK_API_VERSION
from miles_core.host import source
from miles_core.host.scan import InstalledPlugin
from miles_core.testing.kit.grades import Report
from miles_core.testing.kit.source import is_the_core, own_files, package_folder

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Record:
    """The record of one plugin.

    grade     bronze, silver, gold, or "" for none of them
    evidence  `kind.name` -> fully-gated, proxy-gated, verified or not-verified
    checks    {"id", "component", "result"} of each, in the order of id and component
    hook_api  the hook API that it was checked against
    code      sha256 over the package's files: another one means that the record is of other code
    """

    plugin: str
    distribution: str
    version: str
    grade: str
    evidence: dict[str, str]
    checks: tuple[dict[str, str], ...]
    hook_api: str
    code: str
    format: int = FORMAT

    def text(self) -> str:
        """As it stands in the file."""
        facts: dict[str, Any] = asdict(self)
        checks = [json.dumps(check, ensure_ascii=False) for check in facts.pop("checks")]
        body = json.dumps({"format": facts.pop("format"), **facts}, indent=1, ensure_ascii=False)
        lines = ",\n".join(f"  {check}" for check in checks)
        return f'{body[:-2]},\n "checks": [\n{lines}\n ]\n}}\n'


def make_record(report: Report, components: tuple[Component, ...]) -> Record:
    """The record of a report. `components` are what the plugin registers."""
    checks = sorted(
        (
            {"id": f.check.id, "component": f.component, "result": f.result.value}
            for f in report.findings
        ),
        key=lambda check: (check["component"], check["id"]),
    )  # fmt: skip
    return Record(
        plugin=report.plugin.name,
        distribution=report.plugin.distribution,
        version=report.plugin.version,
        grade=report.grade.value if report.grade else "",
        evidence=report.evidence(),
        checks=tuple(checks),
        hook_api=HOOK_API_VERSION,
        code=code_digest(report.plugin, components),
    )


def record_file(plugin: InstalledPlugin) -> Path | None:
    """Where the record of a plugin lies, whether it exists or not; None when its code is no package in a folder."""
    folder = package_folder(plugin)
    return folder / source.RECORD_OF_CHECKS if folder else None


def code_digest(plugin: InstalledPlugin, components: tuple[Component, ...] = ()) -> str:
    """sha256 over names and contents of the package's files; "" when it is not in a folder.

    The core's own plugin shares its package with the host, so its code is the modules that it names.
    """
    folder = package_folder(plugin)
    if folder is None:
        return ""
    if not is_the_core(plugin):
        return source.code_digest(folder)
    digest = hashlib.sha256()
    for file in own_files(plugin, components):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
