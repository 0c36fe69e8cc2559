"""Agents behind `ports.Agent`: which there are, what each costs, and how its output is read.

Enters: the settings. Leaves: agents by name. Each has a file in `adapters`; `runner` is the process that runs one.
Read `registry.py` first.
"""
