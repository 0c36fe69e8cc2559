"""The write-ahead journal, and who owns the data root.

Enters: records of decisions. Leaves: entries in a hash chain, each on stable storage before it is acknowledged.
`writer` appends, `reader` streams and verifies, `checkpoint` lets a run read the tail only, `lock` keeps one owner.
Read `entry.py` first, then `writer.py`.
"""
