"""Ways in and out: what Holdfast has to do with code and services that are not its own.

Enters: what other packages and services bring. Leaves: typed records for the rooms that use them.
Read `plugins/hookspecs.py` first.
"""
