"""Where decisions are written and tasks are handed out, behind `ports.Ledger`.

Enters: records and claims. Leaves: entries, the folded state, and leases.
Read `files.py`: the journal, the checkpoint and the lock as one ledger.
"""
