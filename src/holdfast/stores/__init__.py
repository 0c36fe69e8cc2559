"""Where tasks and their ledger are kept, behind the ports.

Invariants, for every module of this package:

- A person's file keeps every byte that is not ours. Ours is one block at its end: `claim:`, `result:` or `error:`.
- A file that cannot be understood is reported with its line, moved nowhere, and stops no other task.
- No name from a file becomes a path before it was checked, and no symbolic link is followed.
"""
