"""Decisions about ways in and out: plugins.

Enters: a person's request. Leaves: journal entries, and the answer. Read `plugins.py` first.
"""
