"""The only door to the disk: every write, sync, rename, link and removal of Holdfast.

Enters: paths and bytes. Leaves: files that are on stable storage when the call returns, or a `DiskError`.
Nothing else in the package calls the kernel to change a file; the architecture test enforces it.
Read `disk.py` first, then `kernel.py`, which has the system calls that tests replace.
"""
