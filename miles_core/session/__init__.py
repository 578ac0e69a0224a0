"""Sessions: an agent talks chat to a base URL, and what the trainer learns from is exactly what the engine sampled.

    messages.py      what a client sends, in one normal form
    matching.py      whether a replayed message is the stored one
    tree.py          the append-only tree of token-exact checkpoints
    attach.py        where a request may attach, by policy
    conversation.py  prepare a turn, commit a turn: the pure core
    collect.py       nodes to the sequences that are trained on
    session.py       one conversation with an engine behind it
    store.py         the sessions of a run: keys, limits, expiry
    openai_chat.py   the OpenAI chat dialect; others will stand beside it
    http.py          routes
    server.py        the port, and `contracts.sessions.Sessions`

docs/sessions.md has the rules.
"""
