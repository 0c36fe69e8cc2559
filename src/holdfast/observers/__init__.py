"""Files that follow the journal: written from its entries once they are durable, each with a cursor of its own.

Enters: entries. Leaves: files that can be made again from the journal. Read `metric_files.py`.
"""
