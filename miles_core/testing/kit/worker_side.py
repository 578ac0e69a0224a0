"""The side of a probe that runs in the worker: builds a component from its reference and looks at it."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

from miles_core.contracts.component import BuildContext, ComponentRef
from miles_core.contracts.protocols import differences, protocol_of


def build(ref: ComponentRef, context: BuildContext) -> dict[str, Any]:
    """What came of it, as JSON data."""
    try:
        found = asyncio.run(_build(ref, context))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a factory may raise anything
        cause = error.__cause__ or error
        frame = traceback.extract_tb(cause.__traceback__)[-1]
        return {"error": f"{type(cause).__name__}: {cause} ({frame.filename}:{frame.lineno})", "differences": []}
    return {"error": "", "differences": found}


async def _build(ref: ComponentRef, context: BuildContext) -> list[tuple[str, str]]:
    """On an event loop, where components are built in a run too."""
    thing = ref.build(context)
    protocol = protocol_of(ref.kind)
    return list(differences(protocol, thing)) if protocol else []
