"""What its metadata says: names, what it provides, and what a stranger wants to know before installing it."""

from __future__ import annotations

from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from miles_core.host.decide import CORE_DISTRIBUTION, NAMING_CONVENTION
from miles_core.host.metadata import normalise
from miles_core.testing.kit.check import Grade, check, expect, inapplicable, skip
from miles_core.testing.kit.source import package_folder
from miles_core.testing.kit.subject import PluginSubject


@check("", Grade.BRONZE, "it declares in `miles.provides` exactly what it registers")
def provides_what_it_declares(subject: PluginSubject) -> None:
    declared = set(subject.plugin.provides)
    registered = {f"{each.kind}.{each.component.name}" for each in subject.components}
    top = subject.plugin.module.partition(":")[0].partition(".")[0]
    lines = ", ".join(f'"{name}" = "{top}"' for name in sorted(registered - declared))
    remove = ", ".join(sorted(declared - registered))
    expect(
        declared == registered,
        "; ".join(
            filter(None, [lines and f"not declared: {lines}", remove and f"declared, but not registered: {remove}"])
        ),
        '[project.entry-points."miles.provides"] in pyproject.toml has one line for each component; then reinstall',
    )


@check("", Grade.BRONZE, "it registers something: a component or an event hook")
def registers_something(subject: PluginSubject) -> None:
    listens = any(use.plugin == subject.plugin for use in subject.registry.summary())
    expect(subject.components or listens, "it registers nothing", "return Components from a hook such as miles_rewards")


@check("", Grade.SILVER, "miles-plugin-NAME has the entry point NAME and the module miles_plugin_NAME")
def named_by_convention(subject: PluginSubject) -> None:
    """A stranger may call a package as they like; who takes the common prefix also takes what people expect of it."""
    plugin = subject.plugin
    if not plugin.distribution.startswith(NAMING_CONVENTION):
        inapplicable(f"{plugin.distribution} is not named {NAMING_CONVENTION}NAME")
    suffix = plugin.distribution.removeprefix(NAMING_CONVENTION)
    top = plugin.module.partition(":")[0].partition(".")[0]
    module = f"miles_plugin_{suffix.replace('-', '_')}"
    expect(normalise(plugin.name) == suffix, f"its entry point is named {plugin.name!r}", f"name it {suffix!r}")
    expect(top == module, f"its code is in {top}", f"name the package {module}: other names may collide")


@check("", Grade.GOLD, "its metadata has a README, a licence, a summary and the Python versions that it runs on")
def metadata_for_strangers(subject: PluginSubject) -> None:
    found: Any = _distribution(subject).metadata
    body = found.get_payload() if hasattr(found, "get_payload") else ""
    described = str(found.get("Description") or body or "").strip()
    licence = any(found.get(key) for key in ("License-Expression", "License", "License-File")) or any(
        "License ::" in value for value in found.get_all("Classifier", [])
    )
    missing = [
        name
        for name, there in (
            ("readme", described),
            ("license", licence),
            ("description", found.get("Summary")),
            ("requires-python", found.get("Requires-Python")),
        )
        if not there
    ]
    expect(not missing, f"its metadata lacks {', '.join(missing)}", "set them in [project] of pyproject.toml")


@check("", Grade.GOLD, "it ships a py.typed, so that its annotations are seen where it is used")
def typed(subject: PluginSubject) -> None:
    top = subject.plugin.module.partition(":")[0].partition(".")[0]
    folder = package_folder(subject.plugin)
    if folder is None:
        skip("its code is no package in a folder")
    package = next((path for path in (folder, *folder.parents) if path.name == top), folder)
    expect(
        (package / "py.typed").is_file(),
        f"{package} has no py.typed",
        f'add an empty py.typed, and [tool.setuptools.package-data] {top} = ["py.typed", "conformance.json"]',
    )


@check("", Grade.GOLD, "its source has tests")
def has_tests(subject: PluginSubject) -> None:
    if subject.source is None:
        inapplicable("it was not installed from a source folder")
    tests = [*subject.source.glob("tests/**/test_*.py"), *subject.source.glob("tests/**/*_test.py")]
    expect(tests, f"there is no tests/test_*.py in {subject.source}", "`miles plugins new` shows what one looks like")


def _distribution(subject: PluginSubject) -> Distribution:
    location = Path(subject.plugin.location)
    if location.is_dir():
        return Distribution.at(location)
    try:
        return distribution(subject.plugin.distribution or CORE_DISTRIBUTION)
    except PackageNotFoundError:
        skip("its metadata cannot be read here")
