"""One file for each agent: how it is started, and how its stream becomes our events.

Enters: a `Work`. Leaves: a `Launch`, and `AgentEvent`s. Adapters do not import each other.
Read `command.py` first, the simplest; `claude.py` is the fullest.
"""
