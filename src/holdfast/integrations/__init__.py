"""The ways in and out: what arrives from elsewhere, and what leaves to others. A house of several rooms.

Enters: deliveries, issues, and what the journal says. Leaves: tasks, and messages through the one outbox.
Read `outbox/publish.py` first.
"""
