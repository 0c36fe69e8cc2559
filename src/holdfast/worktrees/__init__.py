"""An attempt's worktree, and the way of its tree into the user's repository: candidates, merges, refs, checkouts.

Enters: a task and a base commit. Leaves: a worktree at a path that never changes, and commits made of objects alone.
Read `worktrees.py` first, then `merges.py`.
"""
