"""Whether everything in the data root fits together, what is wrong with it, and what may be removed.

Enters: the data root as it stands. Leaves: findings with what to type; `repair` and `gc` alone change something.
Read `check.py` first: the oracle.
"""
