"""Parts of a start: the order that its runner gets, and how a worktree is left.

Enters: a claimed task and its agent. Leaves: an order. Read `orders.py` first; the steps are in `engine/start.py`.
"""
