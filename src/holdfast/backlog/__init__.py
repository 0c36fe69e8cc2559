"""The folder of task files that people write, and its way into the journal and back.

Enters: YAML files. Leaves: definitions, problems with their lines, and files moved to the folder of their state.
Read `folder.py` first, then `sync.py`, which holds files and journal together.
"""
