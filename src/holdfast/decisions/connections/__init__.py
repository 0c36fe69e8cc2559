"""Decisions about what arrives from elsewhere and leaves to others.

Enters: a person's request. Leaves: entries. Read `outbox.py` first.
"""
