"""Sessions: an agent talks chat to a base URL, and what the trainer learns from is exactly what the engine sampled.

The pure core:
    messages.py      what a client sends, in one normal form
    images.py        images: their normal form and their bounds
    tools.py         the tools of a conversation, and the ids of calls
    matching.py      whether a replayed message is the stored one
    tree.py          the append-only tree of token-exact checkpoints
    attach.py        where a request may attach, by policy; attach_tokens.py: by its tokens alone
    conversation.py  prepare a turn, commit a turn
    collect.py       nodes to the sequences that are trained on

With an engine behind it:
    call.py          what a call asks, and what became of it
    session.py       one conversation, safe for concurrent calls
    store.py         the sessions of a run: keys, names, limits, expiry
    counts.py        what became of sessions and turns, for the metrics of a step

Dialects, pure: bodies to calls, replies to bodies and events (dialect.py says what one is, fields.py reads fields):
    openai_chat.py, openai_responses.py (with responses_items.py), anthropic.py (with anthropic_blocks.py), token_in.py
    recall.py        recognises a reply by the form in which it was sent

HTTP:
    http.py          routes; body.py: what of a body everything behind can read
    deliver.py       one call with a client on the other end
    operator.py      who opens, collects and ends sessions over HTTP
    models.py        what is served
    server.py        the port, and `contracts.sessions.Sessions`

docs/sessions.md has the rules.
"""
