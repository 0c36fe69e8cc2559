"""What people say to agents, and the conversations that they take over themselves.

Enters: a person's words, and the process in whose terminal a person has the task. Leaves: entries and records of both.
Read `conversation_entries.py` first.
"""
