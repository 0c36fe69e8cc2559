"""Processes of others: which of them belong to something of ours, and how all of those are ended."""
