"""What its source imports: what it declares to need, the public names of the core, and no other plugin."""

from __future__ import annotations

import importlib.metadata

from miles_core.host.decide import CORE_DISTRIBUTION, NAMING_CONVENTION
from miles_core.host.metadata import normalise
from miles_core.testing.kit.check import Grade, check, expect, inapplicable, skip
from miles_core.testing.kit.imports import Import, imports_of, modules_of, third_party
from miles_core.testing.kit.source import own_files, package_folder
from miles_core.testing.kit.subject import PluginSubject

CORE_MODULE_NAME = "miles_core"


@check("", Grade.BRONZE, "it declares miles-core and every package that its source imports")
def declares_what_it_imports(subject: PluginSubject) -> None:
    always = {name for name, extra in _requirements(subject) if not extra}
    anyhow = {name for name, _ in _requirements(subject)}
    known = {module for name in always for module in modules_of(name)} | {CORE_MODULE_NAME}
    known_with_extras = known | {module for name in anyhow - always for module in modules_of(name)}
    missing = [
        each
        for each in third_party(_imports(subject), _top(subject))
        if each.top not in (known_with_extras if each.lazy else known) and not _is_plugin(each)
    ]
    names = {_distribution_of(each.top) for each in missing}
    seen = [f"{each.top} ({each.place})" for each in missing[:5]]
    if CORE_DISTRIBUTION not in {*always, subject.plugin.distribution}:
        names.add(CORE_DISTRIBUTION)
        seen.append(CORE_DISTRIBUTION)
    expect(not names, f"used, but not declared: {', '.join(seen)}", _add(*sorted(names)))


@check("", Grade.SILVER, "it uses the public API alone: `from miles_core import X`")
def uses_the_public_api(subject: PluginSubject) -> None:
    if subject.plugin.distribution == CORE_DISTRIBUTION:
        inapplicable("it is a part of the core")
    private = [each for each in _imports(subject) if each.module.startswith("miles_core.")]
    places = ", ".join(f"{each.module} ({each.place})" for each in private[:5])
    expect(
        not private,
        f"imports modules of the core: {places}",
        "write `from miles_core import X`; what is not exported there may change at any time. Tests may use "
        "miles_core.testing",
    )


@check("", Grade.SILVER, "it imports no other plugin")
def imports_no_other_plugin(subject: PluginSubject) -> None:
    others = {plugin.module.partition(".")[0].partition(":")[0] for plugin in subject.registry.index.plugins}
    others -= {_top(subject), "miles_core"}
    found = [
        each for each in _imports(subject) if each.top != _top(subject) and (each.top in others or _is_plugin(each))
    ]
    places = ", ".join(f"{each.top} ({each.place})" for each in found[:5])
    expect(not found, f"imports another plugin: {places}", "let a recipe join them, or move what both need elsewhere")


@check("", Grade.SILVER, "importing its package imports nothing beyond the standard library")
def empty_package(subject: PluginSubject) -> None:
    folder = package_folder(subject.plugin)
    if folder is None:
        inapplicable("it is no package")
    found = third_party(imports_of([folder / "__init__.py"]) if (folder / "__init__.py").is_file() else [], "")
    eager = [each for each in found if not each.lazy]
    expect(
        not eager,
        f"its __init__ imports {', '.join(each.module for each in eager)} ({eager[0].place if eager else ''})",
        "leave the package's __init__.py empty: importing any module of it runs it",
    )


def _imports(subject: PluginSubject) -> list[Import]:
    files = own_files(subject.plugin, [each.component for each in subject.components])
    if not files:
        skip("its source is not in a package in a folder")
    return imports_of(files)


def _top(subject: PluginSubject) -> str:
    return subject.plugin.module.partition(":")[0].partition(".")[0]


def _is_plugin(each: Import) -> bool:
    return each.top.startswith(NAMING_CONVENTION.replace("-", "_"))


def _requirements(subject: PluginSubject) -> list[tuple[str, bool]]:
    """(normalised name, only for an extra) of each requirement."""
    from packaging.requirements import Requirement

    found = [Requirement(line) for line in subject.plugin.requires]
    return [(normalise(each.name), each.marker is not None and "extra" in str(each.marker)) for each in found]


def _distribution_of(module: str) -> str:
    """Who provides the module, as far as it is known here."""
    for distribution in importlib.metadata.distributions():
        try:
            if module in (distribution.read_text("top_level.txt") or "").split():
                return str(distribution.metadata["Name"])
        except (UnicodeDecodeError, KeyError, TypeError):
            continue
    return module.replace("_", "-")


def _add(*names: str) -> str:
    listed = ", ".join(repr(name) for name in names)
    return f"add to dependencies in pyproject.toml: {listed}; where it stands there already, reinstall"
