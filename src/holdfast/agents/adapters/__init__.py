"""One file for each agent: builds its command line, and turns its stream into our events.

Enters: a `Work`. Leaves: a `Launch`, and `AgentEvent`s. Adapters do not import each other.
Read `command.py` first, the simplest; `claude.py` is the fullest.
"""
