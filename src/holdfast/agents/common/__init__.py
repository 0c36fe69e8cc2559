"""What the adapters share: how a CLI is found and asked, what its words mean, prices, the environment it gets.

Enters: whatever a program printed. Leaves: typed values; nothing here raises because of what an agent said.
Read `cli_base.py` first.
"""
