"""Processes that are ours or an agent's: which belong together, what they may use and reach, and how all of them end.

Enters: a start of an attempt, or a gate. Leaves: a control group, a sandbox, and nobody alive once it is over.
Read `starts.py` first, then `sandbox.py`.
"""
