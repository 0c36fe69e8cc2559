"""The loop: plan, perform, plan again; and sleep until something happens.

Enters: a context that owns the data root. Leaves: nothing but what its steps journalled.
Read `loop.py` first. `holds.py` knows which tasks are left alone for now, `wakeup.py` what wakes the loop.
"""
