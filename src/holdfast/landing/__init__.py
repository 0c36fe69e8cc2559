"""The effects by which a result reaches its branch: `verify` runs the gates, `branch` moves it, `refresh` follows.

Enters: a candidate commit. Leaves: a verdict, a moved branch, a checkout that shows it. Each can be reconciled.
Read `verify.py` first; the order of the steps is in `engine/landing.py`.
"""
