"""The audit log: who did what, signed, chained, and sealed with Merkle trees.

Enters: journal entries that somebody may have to answer for. Leaves: records, seals, and proofs for strangers.
Read `log.py` first, then `from_journal.py`, which makes the records.
"""
