"""How two plugin sets differ, field by field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from miles_core.errors import Problem
from miles_core.host.lock import Lock, LockedPlugin

ADDED, REMOVED, CHANGED = "added", "removed", "changed"


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that is not the same. `plugin` is "" for what concerns the set as a whole. `field` is plugin (added or
    removed), version, installation, files, code, options, order or hook_api."""

    how: str
    plugin: str
    field: str
    first: str
    second: str

    def to_json(self) -> dict[str, str]:
        return asdict(self)

    def sentence(self, first: str, second: str) -> str:
        """The difference in words; `first` and `second` say where each side is: `in the lock`, `here`."""
        subject = f"plugin {self.plugin}" if self.plugin else "the set"
        if self.how == ADDED:
            return f"{subject} {self.second} is not {first}"
        if self.how == REMOVED:
            return f"{subject} {self.first} {first} is not enabled {second}"
        what = {
            "version": "is",
            "hook_api": "has the hook API",
            "order": "is enabled in the order",
            "installation": "is installed as",
            "files": "has the files",
            "code": "has the code",
            "options": "is given the options",
        }[self.field]
        return f"{subject} {what} {self.second} {second}, {self.first} {first}"


def differences(first: Lock, second: Lock, *, options: bool = False) -> list[Difference]:
    """Everything in which two sets differ; nothing when they are the same. The options that a recipe gives are no
    property of the set and count only when asked for."""
    found = []
    if first.hook_api != second.hook_api:
        found.append(Difference(CHANGED, "", "hook_api", first.hook_api, second.hook_api))
    rest = {(plugin.distribution, plugin.name): plugin for plugin in second.plugins}
    for plugin in first.plugins:
        other = rest.pop((plugin.distribution, plugin.name), None)
        if other is None:
            found.append(Difference(REMOVED, plugin.label, "plugin", plugin.version, ""))
        else:
            found += _of_plugin(plugin, other, options and min(first.format, second.format) > 1)
    found += [Difference(ADDED, plugin.label, "plugin", "", plugin.version) for plugin in rest.values()]
    orders = [[plugin.name for plugin in lock.plugins] for lock in (first, second)]
    if orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1]):
        found.append(Difference(CHANGED, "", "order", ", ".join(orders[0]), ", ".join(orders[1])))
    return found


def drift(locked: Lock, here: Lock) -> list[Problem]:
    """`differences` as the problems of a run that must use the locked set."""
    wheels = {plugin.label: plugin.name for plugin in here.plugins if plugin.distribution and not plugin.editable}
    return [
        Problem(each.sentence("in the lock", "here"), mend=_look(wheels.get(each.plugin, ""), each.field))
        for each in differences(locked, here)
    ]


def _look(wheel: str, field: str) -> str:
    """Installed files of one wheel that are not the same were altered after it was installed, here or there."""
    return f"`miles plugins verify {wheel}` says which files were altered" if wheel and field == "code" else ""


def _of_plugin(first: LockedPlugin, second: LockedPlugin, options: bool) -> list[Difference]:
    pairs: list[tuple[str, str, str]] = []
    if first.version != second.version:
        pairs.append(("version", first.version, second.version))
    elif first.editable != second.editable:
        pairs.append(("installation", _installation(first), _installation(second)))
    elif not (first.editable and first.distribution):
        altered = first.record == second.record and first.code and second.code
        pairs.append(("code", first.code, second.code) if altered else ("files", first.record, second.record))
    elif first.code and second.code:
        if first.code != second.code:
            pairs.append(("code", _code(first), _code(second)))
    elif first.commit and second.commit:
        pairs.append(("code", _commit(first), _commit(second)))
    if options:
        pairs.append(("options", first.options, second.options))
    return [
        Difference(CHANGED, first.label, field, _short(one), _short(other))
        for field, one, other in pairs
        if one != other
    ]


def _installation(plugin: LockedPlugin) -> str:
    return "an editable source folder" if plugin.editable else "a wheel"


def _code(plugin: LockedPlugin) -> str:
    return f"{_commit(plugin)} ({plugin.code[:12]})"


def _commit(plugin: LockedPlugin) -> str:
    commit = f"of commit {plugin.commit[:12]}" if plugin.commit else "without a commit"
    return commit + (", with uncommitted changes" if plugin.dirty else "")


def _short(text: str) -> str:
    """Digests are told apart by their beginning."""
    is_digest = len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)
    return text[:12] if is_digest else text or "none"


def is_of_editable_code(difference: Difference, plugins: Sequence[LockedPlugin]) -> bool:
    """Whether the difference is that somebody edited the source folder of an editable plugin."""
    labels = {plugin.label for plugin in plugins if plugin.editable and plugin.distribution}
    return difference.field == "code" and difference.plugin in labels
