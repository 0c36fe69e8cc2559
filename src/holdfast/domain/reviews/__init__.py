"""A person's review of a candidate: its records, the hunks of a diff, and the text in which comments are written.

Diffs and edited texts enter; comments with their places leave, and what became of them. Pure: nothing here reads a file
or asks git. Read `review_records.py` first.
"""
