"""Where a prompt attaches that a client rendered itself: by its tokens alone."""

from __future__ import annotations

import hashlib

import numpy as np

from miles_core.contracts.model import Renderer
from miles_core.session.attach import refuse_truncated
from miles_core.session.faults import SessionFault, bad_request
from miles_core.session.tree import Node, Tree
from miles_core.types.sequence import TokenArray
from miles_core.types.task import Message

TOKENS = "tokens"
"""The role that stands for what a client gave as tokens: no message of a chat has it, so none attaches after it."""


def token_message(renderer: Renderer, tokens: TokenArray) -> Message:
    """What people see of tokens that came without messages. Equal for equal tokens alone: others may read the same.
    Raises SessionFault (400) for ids that the renderer does not know."""
    digest = hashlib.blake2b(tokens.tobytes(), digest_size=12).hexdigest()
    try:
        text = renderer.decode(tokens)
    except (ValueError, LookupError, OverflowError) as error:
        raise bad_request(f"the renderer cannot read the tokens: {error}", code="invalid_tokens") from error
    return {"role": TOKENS, "content": text, "digest": digest}


def attach_tokens(tree: Tree, tokens: TokenArray, *, any_history: bool) -> Node | None:
    """The deepest turn with whose tokens, all of them, `tokens` begin and go on; the newest of equals; None: a new
    root. Without `any_history` only the tail grows, or its last turn is asked again with the same tokens.

    Raises SessionFault: 409 that says at which token history diverged, or that the turn was cut.
    """
    if not any_history:
        return _linear(tree, tokens)
    deepest: Node | None = None
    open_places: list[Node | None] = [None]
    while open_places:
        node = open_places.pop()
        if node is not None and (deepest is None or (node.stop, node.number) > (deepest.stop, deepest.number)):
            deepest = node
        open_places += [child for child in tree.children(node) if _passes_through(child, tokens)]
    if deepest is not None:
        refuse_truncated(deepest)
    return deepest


def _passes_through(node: Node, tokens: TokenArray) -> bool:
    """Whether tokens that begin as its parent does go through a node, and on."""
    own = np.concatenate([node.bridge, node.sampled.tokens])
    return node.stop < len(tokens) and np.array_equal(tokens[node.start : node.stop], own)


def _linear(tree: Tree, tokens: TokenArray) -> Node | None:
    lost, tip = tree.lost, tree.newest
    if lost is not None and _goes_on(lost.tokens, tokens):
        tip = lost
    if tip is None:
        return None
    stored = tip.tokens
    if _goes_on(stored, tokens):
        refuse_truncated(tip)
        return tip
    if np.array_equal(stored[: tip.first_sampled], tokens):
        return tip.parent
    raise _diverged(stored, tokens)


def _goes_on(stored: TokenArray, tokens: TokenArray) -> bool:
    return len(stored) < len(tokens) and np.array_equal(stored, tokens[: len(stored)])


def _diverged(stored: TokenArray, tokens: TokenArray) -> SessionFault:
    shared = min(len(stored), len(tokens))
    differing = np.flatnonzero(stored[:shared] != tokens[:shared])
    if len(differing):
        place = int(differing[0])
        what = f"the session has token {stored[place]} at {place}, the request {tokens[place]}"
    else:
        what = f"the session has {len(stored)} tokens, the request ends after {len(tokens)}"
    return SessionFault(
        409, "history_diverged", f"history diverged: {what}", mend="a linear session only grows at its end"
    )
