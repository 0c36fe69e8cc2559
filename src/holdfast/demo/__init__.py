"""`holdfast demo`: runs a dozen tasks while everything is killed, in a temporary folder of its own.

Enters: a seed. Leaves: a repository with the work landed, and counts of what was killed and what was found.
It drives the program from outside, as processes that it starts and kills. Read `lives.py` first.
"""
