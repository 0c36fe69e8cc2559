"""Operations of ways in and out: plugins.

Enters: a checked request. Leaves: a record for the answer, or a `Problem`. Read `plugins.py` first.
"""
