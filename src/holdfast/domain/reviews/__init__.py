"""A person's review of a candidate: its records, the hunks of a diff, and the text in which comments are written.

Enters: diffs, and texts that a person has edited. Leaves: comments with their places, and what became of them. Pure.
Read `review_records.py` first.
"""
