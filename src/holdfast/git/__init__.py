"""Runs git and reads its files: locks, objects, the repository around a folder.

Enters: a repository and arguments. Leaves: git's output, or an error that quotes it.
Nothing here runs over a tree that an agent can write. Read `command.py` first.
"""
