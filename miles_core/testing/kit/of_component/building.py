"""Building: a component is sent to a worker by value and built there, with every member of its kind's Protocol."""

from __future__ import annotations

from miles_core.testing.kit.check import EVERY_KIND, Grade, check, expect, inapplicable
from miles_core.testing.kit.probes import WITHOUT_OBJECTS, built_in_a_worker
from miles_core.testing.kit.subject import ComponentSubject


@check(EVERY_KIND, Grade.SILVER, "it is sent to a fresh process by value and is built there", gate=True)
def builds_in_a_worker(subject: ComponentSubject) -> None:
    if subject.registered.kind in WITHOUT_OBJECTS:
        inapplicable(f"a {subject.registered.kind} is no object")
    built = built_in_a_worker(subject)
    expect(
        not built.error,
        f"{subject.registered.component.factory} with {subject.example}: {built.error}",
        "a factory is called as factory(options, context); give the Component an `example` if it needs options",
    )


@check(EVERY_KIND, Grade.SILVER, "what is built has every member of its Protocol, with the same arguments", gate=True)
def keeps_the_protocol(subject: ComponentSubject) -> None:
    if subject.registered.kind in WITHOUT_OBJECTS:
        inapplicable(f"a {subject.registered.kind} is no object")
    different = built_in_a_worker(subject).differences
    expect(not different, "; ".join(what for what, _ in different), "; ".join(mend for _, mend in different))
