"""Writes decisions and hands out tasks, behind `ports.Ledger`.

Enters: records, claims and observers. Leaves: entries, the folded state, and leases.
Read `files.py`: the journal, the checkpoint and the lock as one ledger. `reader.py` reads without owning anything.
"""
