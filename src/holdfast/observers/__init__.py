"""Parts that follow the journal: each gets its entries once they are durable, and has a cursor of its own.

Enters: entries. Leaves: files that can be made again from the journal, and calls of `handle`, each entry at least once.
Read `journal_follower.py`, then `metric_files.py`.
"""
