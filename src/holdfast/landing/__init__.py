"""The effects that bring a result to its branch: `verify` runs the gates, `branch` moves the branch, `refresh` the
checkouts.

Enters: a candidate commit. Leaves: a verdict, a moved branch, a checkout that shows it. Each can be reconciled.
Read `verify.py` first; the order of the steps is in `engine/landing.py`.
"""
