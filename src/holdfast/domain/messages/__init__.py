"""Messages that leave: pushes, pull requests, comments, notifications. The journal's entries, and the outbox as a fold.

Enters: entries about messages. Leaves: the messages that are still to be sent, and when. Pure.
Read `outbox_records.py` first.
"""
