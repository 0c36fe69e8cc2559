"""The steps of the work, in order: board, start, spawn, turns, outcome, landing; and recovery after a crash.

Enters: the state and what was seen of the attempts. Leaves: intents and outcomes in the journal, and effects.
Read `plan.py` first: what is done next. `context.py` is what the steps share. The loop is in `orchestrator`.
"""
