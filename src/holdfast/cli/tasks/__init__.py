"""The commands for one task: add and edit it, list and show it, read its turns, gates and prompt, decide about it.

What they change goes through `decisions/` or, for a definition, into the backlog's files. Read `listing.py` first.
"""
