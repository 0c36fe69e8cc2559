"""Requests of people and workers: cancel, retry, approve, undo, fork, promote, claim.

Enters: a request with an id. Leaves: records under that id, so that the same request is never carried out twice.
Read `tasks.py` first; `mailbox.py` is how a request reaches the run that owns the data root.
"""
