"""What arrives from elsewhere, and what leaves to others.

Enters: a checked request. Leaves: a record for the answer, or a `Problem`. Read `outbox.py` first.
"""
