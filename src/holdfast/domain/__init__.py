"""The pure middle: records, tables and functions of their arguments alone.

Enters: journal entries, definitions, times as arguments. Leaves: the folded state, and decisions as values.
Read `task_record.py` first: all that is known of one task; then `state.py`, which folds the journal, and `fsm.py`.

Invariants, for every module of this package:

- No I/O, no clock, no paths, no randomness: a time or a name comes in as an argument, a decision goes out as a value.
- Records are frozen; a changed record is a new one. Only the folded `State` and its tasks change, by the fold alone.
- A state machine is a table. What the table does not name is refused, and the refusal can be written down.
"""
