"""The commands for one task: add and edit it, list and show it, read its turns, gates and prompt, decide about it.

Enters: a task's id and options. Leaves: its rows and texts, or a decision that the journal has.
What they change goes through `decisions/` or, for a definition, into the backlog's files. Read `listing.py` first.
"""
