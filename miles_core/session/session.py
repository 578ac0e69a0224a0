"""One session: a conversation with engines behind it. Safe for concurrent calls."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from miles_core.contracts.engine import EngineClient, Finish, GenerateRequest, GenerateResult
from miles_core.contracts.rollout import Attempt
from miles_core.contracts.sessions import Collected
from miles_core.errors import PluginError, RequestError
from miles_core.session.call import ChatReply, ChatRequest, TokenRequest
from miles_core.session.collect import sequences
from miles_core.session.conversation import Conversation, Pending
from miles_core.session.counts import Counts
from miles_core.session.faults import SessionFault, bad_request
from miles_core.session.images import told
from miles_core.session.tree import Node
from miles_core.types.sampling import NoiseKey, Sampling
from miles_core.types.task import Message


class Session:
    """Samples as its attempt says. `context` is the longest sequence that the engines take, in tokens. `broken` never
    has a result; its exception is what ended the session's usefulness. `counts` is told of every turn."""

    def __init__(
        self,
        id: str,
        attempt: Attempt,
        conversation: Conversation,
        engines: EngineClient,
        context: int,
        counts: Counts,
    ) -> None:
        self.id = id
        self.conversation = conversation
        self.last_used = 0.0
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._attempt = attempt
        self._engines = engines
        self._context = context
        self._counts = counts
        self._one_by_one = asyncio.Lock()
        self._calls: set[asyncio.Task[GenerateResult]] = set()
        self._pending: list[Pending] = []
        self._numbers = itertools.count()
        self._ignored: Counter[str] = Counter()
        self._closed = ""

    @property
    def busy(self) -> bool:
        return bool(self._calls)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Of the attempt's task."""
        return self._attempt.task.metadata

    async def chat(self, request: ChatRequest | TokenRequest) -> ChatReply:
        """Sample one turn and keep it. Raises SessionFault; the session is then as it was before.

        Cancelling it cancels the engine's work.
        """
        async with self._admitted():
            self._check_open()
            pending = self._guarded_prepare(request)
            asked = self._request(request, pending)
            self._pending.append(pending)
            try:
                result = await self._generate(asked, own_tokens=isinstance(request, TokenRequest))
            finally:
                self._pending.remove(pending)
            self._check_open()
            self._ignored.update(request.ignored)
            return ChatReply(self._commit(pending, asked, result))

    def count(self, request: ChatRequest) -> int:
        """How many tokens the prompt of a call would have; of a history that cannot go on here: were it rendered anew.
        Changes nothing."""
        try:
            return len(self._guarded_prepare(request).tokens)
        except SessionFault as fault:
            if fault.status != 409:
                raise
            return len(self.conversation.render(request.messages, request.tools))

    def earlier(self, request: str) -> tuple[Message, ...] | None:
        """The conversation up to and with the turn that a request of this id sampled; None when there is none."""
        nodes = self.conversation.tree.nodes
        return next((node.messages for node in reversed(nodes) if node.sampled.request == request), None)

    def withdraw(self, reply: ChatReply) -> None:
        """The answer did not reach the client: unless it goes on from it, the turn is not trained on."""
        self.conversation.tree.withdraw(reply.node)
        self._counts.add("undelivered")

    def collect(self) -> Collected:
        """See `contracts.sessions.Collected`."""
        tree, leaves = self.conversation.tree, self.conversation.policy.kept(self.conversation.tree)
        kept = {node.number for leaf in leaves for node in leaf.path}
        dropped = [node for node in tree.nodes if node.number not in kept]
        facts: dict[str, Any] = {"turns": len(kept)}
        if dropped:
            facts["dropped_turns"] = len(dropped)
            facts["dropped_tokens"] = sum(len(node.sampled.tokens) for node in dropped)
        if self._ignored:
            facts["ignored"] = dict(self._ignored)
        last = leaves[-1] if leaves else None
        content = "" if last is None else last.reply["content"]
        return Collected(
            sequences=sequences(leaves),
            text=content if isinstance(content, str) else "",
            truncated=last is not None and last.sampled.finish is Finish.LENGTH,
            turns=len(kept),
            facts=facts,
        )

    def inspect(self) -> dict[str, Any]:
        """What the session holds, as JSON data, without a token or a key."""
        kept = {node.number for leaf in self.conversation.policy.kept(self.conversation.tree) for node in leaf.path}
        return {
            "session": self.id,
            "attempt": self._attempt.id,
            "task": self._attempt.task.id,
            "busy": self.busy,
            "turns": [
                {
                    "number": node.number,
                    "parent": None if node.parent is None else node.parent.number,
                    "turn": node.turn,
                    "kept": node.number in kept,
                    "messages": [told(message) for message in (*node.added, node.reply)],
                    "prompt_tokens": node.first_sampled,
                    "sampled_tokens": len(node.sampled.tokens),
                    "cached_tokens": node.sampled.cached_tokens,
                    "finish": node.sampled.finish.value,
                    "temperature": node.sampled.temperature,
                    "engine": node.sampled.engine,
                    "request": node.sampled.request,
                    "versions": [span.version for span in node.sampled.spans],
                }
                for node in self.conversation.tree.nodes
            ],
        }

    def close(self, why: str) -> None:
        """No call is answered any more; those in flight are cancelled."""
        self._closed = self._closed or why
        for call in self._calls:
            call.cancel()
        self._tell(gone(self._closed))

    @contextlib.asynccontextmanager
    async def _admitted(self) -> AsyncIterator[None]:
        """Calls of a session whose policy is not concurrent wait for each other."""
        if self.conversation.policy.concurrent:
            yield
        else:
            async with self._one_by_one:
                yield

    def _check_open(self) -> None:
        if self._closed:
            raise gone(self._closed)

    def _guarded_prepare(self, request: ChatRequest | TokenRequest) -> Pending:
        try:
            if isinstance(request, TokenRequest):
                return self.conversation.prepare_tokens(request.tokens, self._pending)
            return self.conversation.prepare(request.messages, self._pending, request.tools)
        except PluginError as error:
            raise self._break(error) from error

    def _commit(self, pending: Pending, request: GenerateRequest, result: GenerateResult) -> Node:
        try:
            node = self.conversation.commit(pending, request, result)
        except PluginError as error:
            raise self._break(error) from error
        self._counts.turn(self.conversation.tree, node)
        return node

    def _request(self, request: ChatRequest | TokenRequest, pending: Pending) -> GenerateRequest:
        return GenerateRequest(
            id=f"{self._attempt.id}/{next(self._numbers)}",
            tokens=pending.tokens,
            sampling=self._sampling(request, len(pending.tokens)),
            noise=_noise(self._attempt, pending, request.seed, self.conversation.policy.concurrent),
            affinity=f"session/{self.id}",
            images=pending.all_images,
        )

    def _sampling(self, request: ChatRequest | TokenRequest, prompt: int) -> Sampling:
        """The recipe's, but for a temperature and a lower limit that the request asks for; never beyond the context."""
        room = self._context - prompt
        if room < 1:
            raise bad_request(
                f"the conversation has {prompt} tokens and the model's context is {self._context}: "
                "there is no room for an answer",
                code="context_length_exceeded",
            )
        base = self._attempt.sampling
        limit = min(base.max_new_tokens, room, request.max_new_tokens or base.max_new_tokens)
        temperature = base.temperature if request.temperature is None else request.temperature
        stops = (*base.stop_tokens, *(request.stop_tokens if isinstance(request, TokenRequest) else ()))
        return replace(base, temperature=temperature, max_new_tokens=limit, stop_tokens=stops)

    async def _generate(self, request: GenerateRequest, own_tokens: bool) -> GenerateResult:
        """`own_tokens`: the prompt is the client's, and so is the fault when the engine refuses it."""
        call = asyncio.ensure_future(self._engines.generate(request))
        self._calls.add(call)
        try:
            return await call
        except asyncio.CancelledError:
            if self._closed and not _cancelled():
                raise gone(self._closed) from None
            raise
        except Exception as error:
            if own_tokens and isinstance(error, RequestError):
                raise bad_request(f"the engine refuses the tokens: {error}", code="invalid_tokens") from error
            raise self._break(error) from error
        finally:
            self._calls.discard(call)

    def _break(self, error: Exception) -> SessionFault:
        """What is wrong is not the client's fault: whoever watches the session is told, and so is the client."""
        self._tell(error)
        return SessionFault(502, "engine_failed", f"{type(error).__name__}: {error}".replace("\n", " "))

    def _tell(self, error: Exception) -> None:
        if not self.broken.done():
            self.broken.set_exception(error)
            self.broken.exception()  # nobody need watch


def _cancelled() -> bool:
    """Whether it is this task that is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def gone(why: str) -> SessionFault:
    """The fault of a key whose session has ended."""
    return SessionFault(410, "session_gone", f"the session is {why}")


def _noise(attempt: Attempt, pending: Pending, seed: int | None, branching: bool) -> NoiseKey:
    """A function of the attempt and the turn; asking a turn again, or a seed of the client's own, gives other noise.

    Branches are told apart by what they add, and not by which of them came first.
    """
    key = attempt.noise(pending.turn)
    branch = f"/{hashlib.blake2b(pending.bridge.tobytes(), digest_size=8).hexdigest()}" if branching else ""
    again = f"/again-{pending.again}" if pending.again else ""
    own = f"/seed-{seed}" if seed is not None else ""
    return replace(key, purpose=f"{key.purpose}{branch}{again}{own}")
