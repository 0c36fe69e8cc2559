"""Running git, and its files: locks, objects, the repository around a folder.

Enters: a repository and arguments. Leaves: what git said, or an error with its words.
Nothing here runs over a tree that an agent can write. Read `command.py` first.
"""
