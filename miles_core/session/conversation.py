"""One conversation, pure: where a request attaches, which tokens go to the engine, what its answer becomes.

`prepare` and `commit` stand before and after the engine's call and do no I/O. Nothing changes before `commit`, so a
call that fails, is aborted or is given up leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from miles_core.contracts.engine import Finish, GenerateRequest, GenerateResult
from miles_core.contracts.images import Rendered, bridged, has_images, rendered
from miles_core.contracts.model import Renderer
from miles_core.contracts.rollout import Matcher
from miles_core.errors import PluginError
from miles_core.session.attach import Policy
from miles_core.session.attach_tokens import attach_tokens, token_message
from miles_core.session.faults import SessionFault, bad_request
from miles_core.session.images import ImageRules
from miles_core.session.matching import CheckedMatcher
from miles_core.session.messages import normal
from miles_core.session.tools import with_call_ids
from miles_core.session.tree import Node, Sampled, Tree
from miles_core.types.image import ImageSpans
from miles_core.types.sequence import TokenArray
from miles_core.types.task import Message, ToolDefinition


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """A turn that is ready to be sampled. `tokens` is the whole prompt; `bridge` its part after the parent; `again`
    how often the same was asked here before: no two turns have the same parent, messages and `again`. `images` are
    the bridge's own, at their places in `tokens`."""

    parent: Node | None
    added: tuple[Message, ...]
    bridge: TokenArray
    tokens: TokenArray
    again: int
    tools: tuple[ToolDefinition, ...] = ()
    images: ImageSpans = ()

    @property
    def turn(self) -> int:
        return 0 if self.parent is None else self.parent.turn + 1

    @property
    def all_images(self) -> ImageSpans:
        """Those of the whole prompt."""
        return self.images if self.parent is None else (*self.parent.all_images, *self.images)


class Conversation:
    """The tree of one session, with who reads and writes tokens and who decides what may attach."""

    def __init__(
        self, renderer: Renderer, policy: Policy, matcher: Matcher, max_nodes: int, images: ImageRules = ImageRules()
    ) -> None:
        self.tree = Tree()
        self.policy = policy
        self._renderer = renderer
        self._matcher = CheckedMatcher(matcher)
        self._max_nodes = max_nodes
        self._images = images

    def prepare(
        self,
        messages: tuple[Message, ...],
        in_flight: Iterable[Pending] = (),
        tools: tuple[ToolDefinition, ...] = (),
    ) -> Pending:
        """The prompt of a request's messages and tools (in normal form). Only what the request adds is tokenized.
        `in_flight` are turns that were prepared and not yet committed or given up.

        Raises SessionFault: 409 when the history diverged or the session is full, 400 for messages that the model's
        format cannot express.
        """
        self._check_room()
        place = self.policy.attach(self.tree, messages, tools, self._matcher)
        if has_images(place.added):
            earlier = () if place.parent is None else place.parent.all_images
            self._images.check(place.added, len(messages) - len(place.added), len(earlier))
        waiting = (each for each in in_flight if each.parent is place.parent)
        here: list[Node | Pending] = [*self.tree.children(place.parent), *waiting]
        same = (each.again for each in here if each.added == place.added and each.tools == tools)
        again = 1 + max(same, default=-1)
        if place.parent is None:
            prompt = self._asked(lambda: rendered(self._renderer, place.added, tools=tools))
            return Pending(None, place.added, prompt.tokens, prompt.tokens, again, tools, prompt.images)
        before = place.parent.tokens
        bridge = self._asked(lambda: bridged(self._renderer, before, place.added, tools=tools))
        tokens = np.concatenate([before, bridge.tokens])
        images = tuple(span.moved(len(before)) for span in bridge.images)
        return Pending(place.parent, place.added, bridge.tokens, tokens, again, tools, images)

    def prepare_tokens(self, tokens: TokenArray, in_flight: Iterable[Pending] = ()) -> Pending:
        """The same for a client that renders itself: `tokens` is the whole prompt, taken as it is. Raises SessionFault
        (409) when a linear session's tokens are not its beginning, or the session is full."""
        self._check_room()
        parent = attach_tokens(self.tree, tokens, any_history=self.policy.concurrent)
        bridge = tokens if parent is None else tokens[parent.stop :]
        added = (token_message(self._renderer, bridge),)
        waiting = (each for each in in_flight if each.parent is parent)
        here: list[Node | Pending] = [*self.tree.children(parent), *waiting]
        again = 1 + max((each.again for each in here if np.array_equal(each.bridge, bridge)), default=-1)
        return Pending(parent, added, bridge, tokens, again, () if parent is None else parent.tools)

    def render(self, messages: tuple[Message, ...], tools: tuple[ToolDefinition, ...]) -> TokenArray:
        """The prompt of messages that attach nowhere. Raises SessionFault (400) as `prepare` does."""
        return self._asked(lambda: rendered(self._renderer, messages, tools=tools)).tokens

    def commit(self, pending: Pending, request: GenerateRequest, result: GenerateResult) -> Node:
        """Keep what was sampled. Raises PluginError when the engine's answer contradicts itself or the request, and
        SessionFault (503) when it was aborted; nothing is kept then."""
        if result.finish is Finish.ABORT:
            what = f"the engine aborted the turn after {len(result.tokens)} tokens"
            raise SessionFault(503, "generation_aborted", what, mend="nothing of it was kept: ask again", retry=True)
        if faults := _contradictions(pending, request, result):
            raise PluginError(
                f"engine {result.engine!r} broke its contract: {'; '.join(faults)}",
                where=f"request {request.id}",
                mend="see contracts.engine.GenerateResult",
            )
        sampled = Sampled(
            request=request.id,
            engine=result.engine,
            tokens=result.tokens,
            logprobs=result.logprobs,
            spans=result.spans,
            finish=result.finish,
            temperature=request.sampling.temperature,
            cached_tokens=result.cached_tokens,
            routing=result.routing,
        )
        reply = self._reply(pending, result.tokens)
        again, tools, images = pending.again, pending.tools, pending.images
        return self.tree.append(
            pending.parent, pending.added, pending.bridge, sampled, reply, again, tools=tools, images=images
        )

    def _check_room(self) -> None:
        if len(self.tree) >= self._max_nodes:
            raise SessionFault(409, "session_full", f"the session has {len(self.tree)} turns, which is its limit")

    def _reply(self, pending: Pending, tokens: TokenArray) -> Message:
        try:
            parsed = self._renderer.parse(tokens, tools=pending.tools)
            reply = normal({**parsed.message, "role": "assistant"})
            return with_call_ids(reply, pending.turn, pending.again, pending.bridge, tokens)
        except Exception as error:  # a renderer is a plugin; sampled tokens are no reason to fail
            raise PluginError(
                f"the renderer cannot parse sampled tokens: {type(error).__name__}: {error}",
                mend="`Renderer.parse` gives a message for any tokens",
            ) from error

    def _asked(self, make: Callable[[], Rendered]) -> Rendered:
        try:
            found = make()
        except ValueError as error:
            raise bad_request(f"the model's chat format cannot express this: {error}", code="not_renderable") from error
        except PluginError:
            raise
        except Exception as error:
            raise PluginError(f"the renderer failed: {type(error).__name__}: {error}") from error
        if not len(found.tokens):
            raise bad_request("the messages are not a single token", code="not_renderable")
        return found


def _contradictions(pending: Pending, request: GenerateRequest, result: GenerateResult) -> list[str]:
    """What is wrong with an engine's answer."""
    for name, array, dtype in (("tokens", result.tokens, np.int32), ("logprobs", result.logprobs, np.float32)):
        if not (isinstance(array, np.ndarray) and array.dtype == dtype and array.ndim == 1):
            return [f"`{name}` is {getattr(array, 'dtype', type(array).__name__)}, expected {np.dtype(dtype)} [m]"]
    count, sampling = len(result.tokens), request.sampling
    found = []
    if not 1 <= count <= sampling.max_new_tokens:
        found.append(f"{count} tokens where 1 to {sampling.max_new_tokens} were asked for")
    if len(result.logprobs) != count:
        found.append(f"{len(result.logprobs)} log-probs for {count} tokens")
    elif count and not (np.isfinite(result.logprobs).all() and (result.logprobs <= 0).all()):
        found.append("a log-prob that is above 0 or not finite")
    if count and int(result.tokens.min()) < 0:
        found.append("a negative token id")
    edges = [0, *(span.stop for span in result.spans)]
    if [span.start for span in result.spans] != edges[:-1] or edges[-1] != count:
        found.append(f"version spans that do not cover its {count} tokens in order")
    versions = [span.version for span in result.spans]
    oldest = pending.parent.sampled.spans[-1].version if pending.parent is not None else 1
    if any(later < earlier for earlier, later in zip([oldest, *versions], versions, strict=False)):
        found.append(f"weight versions {versions} after version {oldest}: they never go back")
    stops = {*sampling.stop_tokens}
    if result.finish is Finish.STOP and count and stops and int(result.tokens[-1]) not in stops:
        found.append(f"finish `stop` on token {int(result.tokens[-1])}, which is no stop token")
    known = pending.parent is None or (pending.parent.sampled.routing is None) == (result.routing is None)
    if not known or (result.routing is not None and len(result.routing) != len(pending.tokens) + count - 1):
        found.append("routing for some tokens of the conversation and not for others")
    return found
