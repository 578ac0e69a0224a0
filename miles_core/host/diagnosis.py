"""What is wrong with installed plugins, with what they need and with what stands beside them on the import path."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from miles_core.host.damage import broken_by, examine, mend_of
from miles_core.host.entry_groups import without_plugin
from miles_core.host.facts import BROKEN, INCOMPATIBLE, Facts, is_of_other_code
from miles_core.host.metadata import normalise, read_sections
from miles_core.host.needs import check_requirement
from miles_core.host.probe import Probe
from miles_core.host.provides import unknown_kinds
from miles_core.host.scan import HOOK_API_GROUP, PLUGINS_GROUP, PROVIDES_GROUP, Index, InstalledPlugin
from miles_core.host.source import package_folder, source_folder

METADATA, SHADOWING, VERSIONS, EXTRAS = "metadata", "shadowing", "versions", "extras"
EDITABLE, LOADING, GLOBAL_STATE, DECLARATIONS = "editable", "loading", "global state", "declarations"
SECTIONS = (METADATA, SHADOWING, VERSIONS, EXTRAS, EDITABLE, LOADING, GLOBAL_STATE, DECLARATIONS)


@dataclass(frozen=True, slots=True)
class Trouble:
    """One finding. `plugin` is "" when it concerns no plugin. `serious`: the plugin does not work, or not as it says;
    what is not serious is a remark."""

    section: str
    what: str
    mend: str = ""
    plugin: str = ""
    serious: bool = True

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def of_metadata(index: Index) -> Iterator[Trouble]:
    """Damaged metadata of any distribution on the path. It is serious where a plugin's own metadata is damaged."""
    plugins = {plugin.location: plugin.name for plugin in index.plugins}
    for damage in examine():
        broken = "; ".join(f"{reader.name} {reader.when}" for reader in broken_by(damage, index.versions))
        plugin = damage.plugin or plugins.get(damage.location, "")
        what = f"{damage}. It breaks {broken}" if broken else str(damage)
        yield Trouble(METADATA, what, mend_of(damage), plugin, serious=bool(plugin))


def of_shadowing(index: Index, path: Sequence[str]) -> Iterator[Trouble]:
    """Distributions that hide another of their name, and folders that hide an installed plugin's package."""
    for plugin in index.shadowed:
        yield Trouble(
            SHADOWING,
            f"{plugin.distribution} {plugin.version} at {plugin.location} is hidden by {plugin.shadowed_by}, "
            "which comes earlier on the import path",
            "remove or refresh the earlier one",
            plugin.name,
        )
    for plugin in index.plugins:
        package = package_folder(plugin)
        top = plugin.module.partition(":")[0].partition(".")[0]
        own = _top_of(Path(package), top) if package else Path(plugin.location).parent
        home = own.parent if package else own
        for entry in path:
            folder = Path(entry or ".").resolve()
            if folder == home.resolve():
                break
            if (folder / top / "__init__.py").is_file() or (folder / f"{top}.py").is_file():
                what = f"{folder / top} hides the installed package of {plugin.distribution} at {own}"
                mend = f"work in another folder, take {folder} off PYTHONPATH, or install it with pip install -e"
                yield Trouble(SHADOWING, what, mend, plugin.name)
                break


def _top_of(package: Path, top: str) -> Path:
    return next((folder for folder in (package, *package.parents) if folder.name == top), package)


def of_versions(row: Facts) -> Iterator[Trouble]:
    """Unmet requirements, another hook API, a damaged record of checks."""
    plugin = row.plugin
    if row.status in (BROKEN, INCOMPATIBLE):
        wanted = " ".join(repr(state.requirement) for state in row.requirements if not state.ok and state.name)
        mend = f"pip install {wanted}" if wanted else f"pip install --upgrade miles-core {plugin.distribution}"
        yield Trouble(VERSIONS, f"{plugin.title} is {row.status}: {row.error}", mend, plugin.name)
    elif row.error:
        yield Trouble(VERSIONS, f"{plugin.title}: {row.error}", "", plugin.name, serious=False)
    if row.checked and not row.checked.current and not row.checked.edited:
        what = f"{plugin.title}: its grade is that of {row.checked.version}"
        yield Trouble(VERSIONS, what, f"miles plugins check {plugin.name} --record", plugin.name, serious=False)
    elif is_of_other_code(row):
        what = f"{plugin.title}: its grade is that of other code; the package was edited since"
        yield Trouble(VERSIONS, what, f"miles plugins check {plugin.name} --record", plugin.name, serious=False)


def of_extras(plugin: InstalledPlugin, versions: Mapping[str, str]) -> Iterator[Trouble]:
    """Extras of which a part is missing. Nobody knows whether they were wanted, so these are remarks."""
    missing: dict[str, list[str]] = {}
    for line in plugin.requires:
        requirement, _, marker = line.partition(";")
        if "extra" not in marker:
            continue
        extra = marker.replace("'", '"').partition('extra == "')[2].partition('"')[0]
        state = check_requirement(requirement.strip(), versions)
        if extra and state is not None and not state.ok:
            missing.setdefault(extra, []).append(state.fault)
    for extra, faults in missing.items():
        what = f"{plugin.title}: the extra {extra!r} is not complete: {', '.join(faults)}"
        mend = f"if you want it: pip install '{plugin.distribution}[{extra}]'"
        yield Trouble(EXTRAS, what, mend, plugin.name, serious=False)


def of_editable(plugin: InstalledPlugin) -> Iterator[Trouble]:
    """Entry points that pyproject.toml says and the installed metadata does not, or the other way round."""
    if not plugin.editable:
        return
    mend = "pip install --no-build-isolation --no-deps -e FOLDER, with its source folder"
    source = source_folder(plugin)
    if not source:
        what = f"{plugin.title} was installed from a folder that is gone"
        yield Trouble(EDITABLE, what, mend, plugin.name)
        return
    file = Path(source, "pyproject.toml")
    mend = mend.partition(", ")[0].replace("FOLDER", source)
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        yield Trouble(EDITABLE, f"{file} cannot be read: {error}", f"mend {file}", plugin.name)
        return
    if normalise(str(project.get("name", ""))) != plugin.distribution or "entry-points" in project.get("dynamic", ()):
        return
    groups = (PLUGINS_GROUP, PROVIDES_GROUP, HOOK_API_GROUP)
    said = {group: dict(project.get("entry-points", {}).get(group, {})) for group in groups}
    text = Path(plugin.location, "entry_points.txt").read_text(encoding="utf-8")
    differing = _differing(said, read_sections(text, groups))
    if differing:
        what = f"{plugin.title}: {file} and the installed metadata differ in {', '.join(differing)}"
        yield Trouble(EDITABLE, what, mend, plugin.name)
    version = project.get("version")
    if version is not None and version != plugin.version:
        what = f"{plugin.title}: {file} says version {version}"
        yield Trouble(EDITABLE, what, mend, plugin.name)


def _differing(said: Mapping[str, Mapping[str, str]], found: Mapping[str, Mapping[str, str]]) -> list[str]:
    differing = []
    for group, entries in said.items():
        for name in sorted({*entries, *found[group]}):
            here, there = ("".join(each.get(name, "absent").split()) for each in (entries, found[group]))
            if here != there:
                differing.append(f"{group} {name!r} ({here} in pyproject.toml, {there} installed)")
    return differing


def of_groups(index: Index) -> Iterator[Trouble]:
    """Distributions that mean to be plugins and are none."""
    for name, what, mend in without_plugin(index):
        yield Trouble(DECLARATIONS, what, mend, name)


def of_kinds(plugin: InstalledPlugin) -> Iterator[Trouble]:
    """What `miles.provides` says, against the kinds that there are: seen without an import."""
    for fault in unknown_kinds(plugin):
        yield Trouble(DECLARATIONS, f"{plugin.title}: {fault[0]}", fault[1], plugin.name)


def of_loading(plugin: InstalledPlugin, seen: Probe) -> Iterator[Trouble]:
    """What went wrong when it was loaded, what it brought in, and what it changed for everybody in its process."""
    for problem in seen.problems:
        place = f"{problem.where}: " if problem.where and problem.where not in problem.what else ""
        yield Trouble(LOADING, f"{place}{problem.what}", problem.mend, plugin.name)
    if seen.heavy:
        what = f"{plugin.title}: registering imports {', '.join(seen.heavy)} ({seen.import_ms:.0f} ms)"
        mend = "name factories and options as strings, and import heavy libraries in the factory's module"
        yield Trouble(LOADING, what, mend, plugin.name)
    mend = "do it in the component, when it is built, and undo it when it is closed"
    for state, how in seen.changes.items():
        yield Trouble(GLOBAL_STATE, f"{plugin.title} changes {state} when it is imported: {how}", mend, plugin.name)
    if seen.printed:
        text = seen.printed.strip().splitlines()[0][:80] if seen.printed.strip() else "white space"
        what = f"{plugin.title} writes on standard output when it is imported: {text}"
        yield Trouble(GLOBAL_STATE, what, "use logging; standard output belongs to the command", plugin.name)


def of_declarations(plugin: InstalledPlugin, seen: Probe) -> Iterator[Trouble]:
    """`miles.provides` against what the code registers."""
    if seen.problems:
        return
    registered = {f"{component['kind']}.{component['name']}" for component in seen.components}
    declared = set(plugin.provides)
    for names, what in (
        (registered - declared, "registers what its miles.provides does not list, so that nobody can be told of it"),
        (declared - registered, "lists in miles.provides what it does not register"),
    ):
        if names:
            mend = "make the group miles.provides in pyproject.toml list what is registered, and install again"
            yield Trouble(DECLARATIONS, f"{plugin.title} {what}: {', '.join(sorted(names))}", mend, plugin.name)


def in_sections(troubles: Iterable[Trouble]) -> list[Trouble]:
    """In the order of SECTIONS."""
    return sorted(troubles, key=lambda trouble: SECTIONS.index(trouble.section))
