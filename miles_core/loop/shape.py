"""What a plugin's factory made has the methods of its kind's contract, or is refused by name before any work."""

from __future__ import annotations

from typing import TypeVar

from miles_core.contracts.component import ComponentRef
from miles_core.contracts.protocols import differences, protocol_of
from miles_core.errors import PluginError, Problem

Made = TypeVar("Made")


def shaped(ref: ComponentRef, made: Made) -> Made:
    """`made` itself. Raises PluginError with every method that is missing, takes other arguments, or is a coroutine
    where the contract has none (and the other way round)."""
    protocol = protocol_of(ref.kind)
    faults = list(differences(protocol, made)) if protocol is not None else []
    if faults:
        where = f"{ref.owner} ({ref.factory})"
        raise PluginError([Problem(f"{ref.kind} {ref.name!r}: {what}", where, mend) for what, mend in faults])
    return made
