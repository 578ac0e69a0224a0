"""Which installed plugins are enabled: a pure function of what is installed and of what every source says.

It runs before anything is imported and finds every fault at once. For each plugin the strongest source that mentions it
decides; where one source both enables and blocks it, the block counts. The core's own plugin is always enabled. The
reasons are kept: who enabled or blocked each plugin, and what lost.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import miles_core
from miles_core.errors import Problem
from miles_core.host import names as naming
from miles_core.host.admit import objections
from miles_core.host.known_bad import KNOWN_BAD
from miles_core.host.names import CORE_DISTRIBUTION as CORE_DISTRIBUTION
from miles_core.host.names import CORE_MODULE as CORE_MODULE
from miles_core.host.names import MILESFILE, is_core, short_name
from miles_core.host.names import NAMING_CONVENTION as NAMING_CONVENTION
from miles_core.host.names import core_plugin as core_plugin
from miles_core.host.names import matching as matching
from miles_core.host.request import (
    BLOCKS,
    COMMAND_LINE,
    ENABLES,
    ENVIRONMENT,
    LEAVES_OUT,
    LEVELS,
    NO_PLUGINS,
    RECIPE,
    PluginRequest,
    Wish,
    exactly,
)
from miles_core.host.scan import Index, InstalledPlugin
from miles_core.host.verdict import CONFLICT, DISABLED, ENABLED, UNKNOWN, Reason, Verdict, reasons_of


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something that was asked for cannot be had. `position` is the index of its name in the recipe's list, -1 when
    another source says it (the problem then names the place); `broken` tells a fault of the plugin (exit code 3) from
    one of the request (exit code 2); `meant` are the distributions that the name most likely stands for, so that what
    they provide is not reported missing a second time."""

    position: int
    problem: Problem
    broken: bool = False
    meant: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """`enabled` in the order in which the sources name them, weakest source first, the core before all; whatever was
    refused is not among them. `verdicts` has every plugin that any source mentions, with the reasons."""

    enabled: tuple[InstalledPlugin, ...]
    refusals: tuple[Refusal, ...] = ()
    verdicts: tuple[Verdict, ...] = ()

    @property
    def refused(self) -> tuple[InstalledPlugin, ...]:
        """Installed plugins that were asked for and may not be imported."""
        return tuple(
            each.plugin for each in self.verdicts if each.plugin is not None and each.problems and each not in self.off
        )

    @property
    def off(self) -> tuple[Verdict, ...]:
        """Plugins that a source would enable and a stronger one does not, and those that one blocks."""
        return tuple(each for each in self.verdicts if each.status == DISABLED)

    def verdict(self, plugin: InstalledPlugin) -> Verdict | None:
        """What was decided about an installed plugin; None when no source mentions it."""
        return next((each for each in self.verdicts if each.plugin == plugin), None)


def decide(
    index: Index,
    names: Sequence[str] | PluginRequest,
    core_version: str = miles_core.__version__,
    known_bad: Mapping[str, tuple[str, str, str]] = KNOWN_BAD,
) -> Decision:
    """What a request enables. Plain `names` stand for a request of exactly these."""
    request = names if isinstance(names, PluginRequest) else exactly(names, os.environ)
    heard = _Hearing(index, request)
    refusals = list(heard.refusals)
    enabled: dict[InstalledPlugin, None] = {core_plugin(index): None}
    verdicts: list[Verdict] = [heard.core_verdict()]
    for plugin, wishes in heard.wishes.items():
        ruling = ruled(wishes)
        reasons = reasons_of(wishes, ruling)
        if plugin in heard.unclear:
            verdicts.append(Verdict(plugin.name, plugin, CONFLICT, reasons_of(wishes, None), (heard.unclear[plugin],)))
            continue
        if ruling.says != ENABLES:
            verdicts.append(Verdict(plugin.name, plugin, DISABLED, reasons))
            continue
        against = objections(plugin, index, core_version, known_bad, request.allowed)
        meant = (plugin.distribution,)
        refusals += [
            Refusal(ruling.position, _told_by(ruling, each.problem), broken=True, meant=meant) for each in against
        ]
        if not against:
            enabled[plugin] = None
        status = against[0].status if against else ENABLED
        verdicts.append(Verdict(plugin.name, plugin, status, reasons, tuple(each.problem for each in against)))
    return Decision(tuple(enabled), tuple(_in_order(refusals)), (*verdicts, *heard.nobodies))


def _told_by(wish: Wish, problem: Problem) -> Problem:
    """The problem at the place of whoever enables the plugin; a recipe's place is told by the list of its faults."""
    if wish.level == RECIPE:
        return problem
    return Problem(f"{problem.what} ({problem.where})" if problem.where else problem.what, wish.where, problem.mend)


def ruled(wishes: Sequence[Wish]) -> Wish:
    """The wish that counts: the strongest source's; of one source's the block, else the first."""
    return min(wishes, key=lambda wish: (LEVELS.index(wish.level), wish.says == ENABLES, wish.says == LEAVES_OUT))


def _in_order(refusals: Sequence[Refusal]) -> list[Refusal]:
    """Those of the recipe in its order, then the others."""
    return sorted(refusals, key=lambda refusal: (refusal.position < 0, refusal.position))


class _Hearing:
    """Every wish, brought to the plugin that it means. What means none, or cannot tell which, is refused."""

    def __init__(self, index: Index, request: PluginRequest) -> None:
        self.index = index
        self.request = request
        self.wishes: dict[InstalledPlugin, list[Wish]] = {}
        self.refusals: list[Refusal] = []
        self.nobodies: list[Verdict] = []
        self.unclear: dict[InstalledPlugin, Problem] = {}
        self._core: list[Wish] = []
        unsure = [wish for wish in request.wishes if not self._hear(wish)]
        for plugin in index.plugins:
            if request.beside and plugin.name == MILESFILE and not plugin.distribution:
                self.wishes.setdefault(plugin, []).insert(0, Wish(RECIPE, plugin.summary, MILESFILE, ENABLES))
        clear = {plugin: ruled(said) for plugin, said in self.wishes.items()}
        for wish in unsure:
            self._settle(wish, clear)
        for plugin, said in self.wishes.items():
            said += self._implied(plugin.name, said, plugin.distribution)
        self._refuse_unknown(unsure)

    def core_verdict(self) -> Verdict:
        """The core is enabled whatever is said of it."""
        core = core_plugin(self.index)
        reasons = (Reason(CORE_DISTRIBUTION, "always", ENABLES, won=True), *reasons_of(self._core, None))
        return Verdict(core.name, core, ENABLED, reasons)

    def _hear(self, wish: Wish) -> bool:
        """Whether it is clear whom the wish means. A block means everyone who answers to the name."""
        found = matching(self.index.plugins, wish.name)
        if wish.says == ENABLES and (wish.name == "core" or (found and all(map(is_core, found)))):
            self._core.append(wish)
            return True
        if wish.says == BLOCKS and (wish.name == "core" or any(map(is_core, found))):
            self._core.append(wish)
            others = [f"no:{each.name}" for each in found if not is_core(each)]
            mend = f"to block what else {wish.name} has: {' or '.join(others)}" if others else "leave it out"
            self._refuse(wish, Problem("the core's own plugin cannot be blocked", self._place(wish), mend))
            return True
        if not found or (wish.says == ENABLES and len(found) > 1):
            return False
        for plugin in found:
            self.wishes.setdefault(plugin, []).append(wish)
        return True

    def _settle(self, wish: Wish, clear: Mapping[InstalledPlugin, Wish]) -> None:
        """A name of several plugins means those that are enabled by their full names elsewhere; else the only one that
        nobody blocks, or whose block is weaker; else nobody can tell. `clear` is what counts of the wishes that each
        name one plugin."""
        found = matching(self.index.plugins, wish.name)
        if not found:
            return
        named = [plugin for plugin in found if plugin in clear and clear[plugin].says == ENABLES]
        free = [plugin for plugin in found if plugin not in clear]
        beaten = [plugin for plugin in found if plugin in clear and ruled([wish, clear[plugin]]) is wish]
        meant = named or free or beaten
        void = ruled([wish, *self._implied(wish.name, [wish])]) is not wish
        for plugin in meant or found:
            self.wishes.setdefault(plugin, []).append(wish)
        if named or void or len(meant) < 2:
            return
        problem = naming.ambiguous(wish.name, meant, self._place(wish))
        self._refuse(wish, problem, broken=True, meant=tuple(plugin.distribution for plugin in meant))
        self.unclear |= dict.fromkeys(meant, problem)

    def _implied(self, name: str, wishes: Sequence[Wish], distribution: str = "") -> list[Wish]:
        """What is said of a plugin without naming it. What the core's own distribution brings along is no part of what
        --no-plugins keeps out."""
        implied = []
        if self.request.core_only and distribution != CORE_DISTRIBUTION:
            implied.append(Wish(COMMAND_LINE, NO_PLUGINS, name, BLOCKS))
        if self.request.replacing and not any(wish.level == ENVIRONMENT for wish in wishes):
            implied.append(Wish(ENVIRONMENT, self.request.replacing, name, LEAVES_OUT))
        return implied

    def _refuse_unknown(self, unsure: Sequence[Wish]) -> None:
        """Names that nothing installed answers to: each is refused, unless nothing would come of it."""
        by_name: dict[str, list[Wish]] = {}
        for wish in unsure:
            if not matching(self.index.plugins, wish.name):
                by_name.setdefault(short_name(wish.name), []).append(wish)
        for wishes in by_name.values():
            everything = [*wishes, *self._implied(wishes[0].name, wishes)]
            ruling = ruled(everything)
            problems = []
            for wish in wishes:
                if _is_void(wish, wishes, ruling):
                    continue
                problem = naming.unknown(self.index, wish.name, self._place(wish))
                meant = tuple(each.distribution for each in naming.nearest(self.index, wish.name))
                self._refuse(wish, problem, meant=meant)
                problems.append(problem)
            status = UNKNOWN if ruling.says == ENABLES else DISABLED
            reasons = reasons_of(everything, ruling)
            self.nobodies.append(Verdict(wishes[0].name, None, status, reasons, tuple(problems)))

    def _refuse(self, wish: Wish, problem: Problem, *, broken: bool = False, meant: tuple[str, ...] = ()) -> None:
        self.refusals.append(Refusal(wish.position, problem, broken, meant))

    def _place(self, wish: Wish) -> str:
        """A recipe's place is told by the list of its faults."""
        return "" if wish.level == RECIPE else wish.where


def _is_void(wish: Wish, wishes: Sequence[Wish], ruling: Wish) -> bool:
    """Whether it does not matter that nothing of this name is installed: a stronger source decides against it, it
    blocks what a weaker one enables, or it is a standing block (a project's, or of a milesfile)."""
    strength = LEVELS.index
    if wish.says == ENABLES:
        return ruling.says != ENABLES and strength(ruling.level) < strength(wish.level)
    weaker = any(each.says == ENABLES and strength(each.level) > strength(wish.level) for each in wishes)
    return weaker or wish.level not in (COMMAND_LINE, ENVIRONMENT) or short_name(wish.name) == MILESFILE
