"""Output on a terminal: tables, streams of lines, the live view of `run`, the full screen of `watch`.

Enters: rows and events. Leaves: text without control characters of others. Read `terminal.py` and `table.py` first.
"""
