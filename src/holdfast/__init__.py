"""Holdfast runs CLI coding agents over a backlog in a git repository, verifies what they made, and lands it.

Enters: task files and a git repository. Leaves: commits on its branch, and a journal that proves how they came there.
Read `ports.py` first: the contracts of the parts; then `wiring.py`, which puts them together.
"""

__version__ = "0.1.0"
