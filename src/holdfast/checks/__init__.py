"""Proves that everything in the data root fits together, says what is wrong with it, and finds what may be removed.

Enters: the data root as it is. Leaves: findings with what to type; only `repair` and `gc` change something.
Read `check.py` first: the oracle.
"""
