"""Records beside the journal: blobs under the name of their hash, append-only ledgers, and attempts' folders.

Enters: bytes, and one JSON object for each line. Leaves: the same, complete, whatever was torn behind them.
Read `blobs.py` first, then `ledger.py`; `attempt_folder.py` tells whether an attempt is alive.
"""
