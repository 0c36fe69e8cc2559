"""Read models: the tasks as rows, the journal as a story, what attempts changed and cost. Looking changes nothing.

Enters: the state and the journal. Leaves: what the commands and the API show. Read `rows.py` first.
"""
