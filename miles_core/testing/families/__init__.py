"""Admitting a model family: its renderer is tried over generated conversations, and over turns of an engine.

conversations.py  what is said: tools, reasoning, unicode, nothing at all
turns.py          one conversation, turn by turn, as a session builds it
offline.py        the checks that need no engine
live.py           the same over turns that an engine samples
subject.py        from a component's name to its renderer
report.py         what was found, and the evidence that it is
"""
