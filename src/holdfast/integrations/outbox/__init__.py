"""Sends messages: the effect `publish`, and the thread that performs it for what is due in the outbox.

Enters: messages that the journal has as queued. Leaves: each by its channel's publisher, under an intent, at least
once, and once where the receiver can be asked. Read `publish.py` first, then `sender.py`.
"""
