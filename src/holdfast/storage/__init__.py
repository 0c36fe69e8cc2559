"""Everything that must survive a crash: the door to the disk, the journal, the records beside it, and the audit log.

Enters: bytes and records of the rooms above. Leaves: files that hold what was acknowledged, whatever was killed.
Read `files/disk.py` first, then `journal/writer.py`.

Invariants, for every module below:

- `files/disk.py` is the only door: no other module of Holdfast writes, syncs or renames.
- When a call returns, its work is on stable storage: the bytes, and every folder entry that leads to them.
- A failed sync is final. The handle refuses all later calls; nothing is acknowledged again.
- Torn is not corrupt. What a crash can leave is recognised, reported and skipped; anything else is an error that names
  file and offset, and deletes nothing.
"""
