"""What an agent may do, and what it must ask a person: rules, questions and their answers. Pure, as `domain/` is.

Enters: the rules of the settings and a call of a tool. Leaves: allow, deny or ask, and the question as a record.
Read `rules.py` first, then `records.py`.
"""
