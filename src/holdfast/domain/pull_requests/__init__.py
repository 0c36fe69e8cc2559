"""A task's pull request: its record, the journal's entries about it, and what is due after a look at it.

Enters: entries, and what a look at the service showed. Leaves: the record inside the task, and the next step. Pure.
Read `pull_records.py` first, then `pull_decisions.py`.
"""
