"""`holdfast demo`: runs a dozen tasks while everything is killed, in a temporary folder of its own.

It drives the program from outside, as processes that it starts and kills, and counts the results.
Read `lives.py` first.
"""
