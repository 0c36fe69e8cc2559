"""Test doubles that ship: real parts for tests of Holdfast, and of anything built on it.

Enters: a program that writes through the door to the disk. Leaves: every disk that a power cut could have left.
Read `recorder.py` first, then `powercut.py`.
"""
