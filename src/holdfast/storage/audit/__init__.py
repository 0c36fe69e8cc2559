"""The audit log: who did what, signed, chained, and sealed with Merkle trees.

Enters: journal entries that record responsibility. Leaves: records, seals, and proofs that outsiders can check.
Read `log.py` first, then `from_journal.py`, which makes the records.
"""
