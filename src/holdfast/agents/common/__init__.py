"""Helpers of the adapters: finding and asking a CLI, recognising its error messages, prices, its environment.

Enters: whatever a program printed. Leaves: typed values; nothing here raises because of an agent's output.
Read `cli_base.py` first.
"""
