"""Processes: which of them belong to something of ours, how all of those are ended, and how one of ours ends."""
