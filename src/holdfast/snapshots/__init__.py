"""The working tree of an attempt as git objects, in a store of our own: one commit for each turn.

Enters: a worktree. Leaves: a commit in `snapshots.git` whose objects are on stable storage before its ref is.
Read `snapshots.py` first, then `store.py`; `shadow.py` is the git dir that reads the worktree.
"""
