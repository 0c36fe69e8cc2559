"""Issues of a tracker as Holdfast sees them: their records, and the mark in the file of a task that came from one.

Enters: what a tracker answered, made plain by its adapter. Leaves: the same for every tracker. Pure.
Read `issue_records.py` first.
"""
