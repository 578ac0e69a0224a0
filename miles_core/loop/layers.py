"""Joining the middleware of a phase around its agent, generator and rollout, once, before there is any work."""

from __future__ import annotations

from collections.abc import Sequence as Several
from typing import Any, TypeVar, cast

from miles_core.contracts.blame import place_of
from miles_core.contracts.component import ComponentRef
from miles_core.contracts.middleware import LAYER_METHODS, Layer, Middleware
from miles_core.errors import MilesError, PluginError, RequestError

Wrapped = TypeVar("Wrapped")


class Layers:
    """The built middleware of one phase, in the order of the recipe: the first one is outermost.

    Raises PluginError for one that names no layer.
    """

    def __init__(self, built: Several[tuple[ComponentRef, Middleware]]) -> None:
        self._built = tuple(built)
        for ref, middleware in self._built:
            layer = getattr(middleware, "layer", None)
            if layer not in LAYER_METHODS or not callable(getattr(middleware, "wrap", None)):
                lacks = f"has the layer {layer!r}" if layer not in LAYER_METHODS else "has no method wrap(inner)"
                known = ", ".join(LAYER_METHODS)
                mend = f"let its layer be one of {known}; miles_core.GeneratorMiddleware and its like have all of it"
                raise _blame(ref, lacks, mend)

    def around(self, layer: Layer, inner: Wrapped) -> Wrapped:
        """`inner` with this layer's middleware around it. Raises PluginError naming the one that fails, or whose result
        lacks a method of the layer's contract."""
        for ref, middleware in reversed(self._built):
            if middleware.layer == layer:
                inner = cast(Wrapped, _wrap(ref, middleware, inner))
        return inner

    def refuse(self, layer: Layer, why: str) -> None:
        """Raises RequestError when there is middleware for a layer that the phase does not have."""
        idle = [ref.name for ref, middleware in self._built if middleware.layer == layer]
        if idle:
            raise RequestError(
                f"middleware {', '.join(map(repr, idle))} wraps the {layer}, and {why}",
                where="middleware",
                mend=f"add `{layer}:`, or remove it from `middleware:`",
            )


def _wrap(ref: ComponentRef, middleware: Middleware, inner: Any) -> Any:
    try:
        wrapped = middleware.wrap(inner)
    except (MilesError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a plugin may raise anything, SystemExit included
        place = place_of(error)
        raise _blame(
            ref, f"failed to wrap: {type(error).__name__}: {error}{f' ({place})' if place else ''}", "repair it"
        ) from error
    lacking = [name for name in LAYER_METHODS[middleware.layer] if not hasattr(wrapped, name)]
    if lacking:
        raise _blame(
            ref,
            f"wrapped the {middleware.layer} as {wrapped!r}, which has no {', '.join(lacking)}",
            f"return an object with {', '.join(LAYER_METHODS[middleware.layer])}, "
            f"e.g. derive from miles_core.{middleware.layer.title()}Middleware",
        )
    return wrapped


def _blame(ref: ComponentRef, what: str, mend: str) -> PluginError:
    return PluginError(f"middleware {ref.name!r} {what}", where=f"{ref.owner} ({ref.factory})", mend=mend)
