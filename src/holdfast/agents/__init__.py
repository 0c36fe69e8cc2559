"""Agents behind `ports.Agent`: the registry, their prices, and the readers of their output.

Enters: the settings. Leaves: agents by name. Each has a file in `adapters`; `runner` is the process that runs one.
Read `registry.py` first.
"""
