"""The task server: one process serves the API, the events and the dashboard.

A request is authorised and decoded by its operation's own types (`operations`), read in place or carried out as a job
(`jobs`) in one of two threads, and answered once what it did is on disk.
"""
