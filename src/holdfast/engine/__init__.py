"""The steps of the work, in order: board, plan, start, effects, spawn, turn_follower, outcome, landing.

Enters: the state and what was seen of the attempts. Leaves: intents and outcomes in the journal, and effects.
Read `plan.py` first: what is done next. `context.py` is what the steps share. The loop is in `orchestrator`.

A start also asks `budget`, `outages` and `prompt`. Off the straight way are `orphans` and `earlier_starts` (an attempt
that continues after a crash, an undo or a fork) and `recovery` (what a crash or a lost journal left open).
"""
