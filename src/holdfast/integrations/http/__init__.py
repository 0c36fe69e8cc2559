"""JSON over HTTP with a service: time limits, rate limits, pages, conditional requests, and what each failure means.

Enters: requests of trackers and publishers. Leaves: answers, or an error that says whether the request can have been
carried out. Read `client.py` first. The client is httpx, of the extra `connect`.
"""
