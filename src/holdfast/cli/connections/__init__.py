"""Commands for what arrives from elsewhere and leaves to others.

Enters: options. Leaves: rows of the views, printed, and decisions. Read `outbox.py` first.
"""
