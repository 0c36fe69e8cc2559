"""Read models of what arrives from elsewhere and leaves to others.

Enters: the state, and entries. Leaves: rows and sentences. Read `outbox.py` first.
"""
