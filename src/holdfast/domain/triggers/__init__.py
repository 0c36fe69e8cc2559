"""What arrives from elsewhere: deliveries, which rules they fired, and the schedules. Entries of the journal, folded.

Enters: entries about deliveries, rules and schedules. Leaves: the deliveries that are not judged yet, and the few facts
by which the next one is judged. Pure. Read `trigger_records.py` first.
"""
