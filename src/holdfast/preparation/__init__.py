"""Makes a worktree a place where the project runs: included files, clones, ports, setup and hooks.

Enters: a worktree that holds its tree, an attempt's or one for gates. Leaves: variables, leased ports, a stamp
that says what it was set up with. Read `preparation.py` first, then `setup.py`.
"""
