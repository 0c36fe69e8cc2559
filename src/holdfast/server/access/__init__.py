"""Who may ask the API, for what, and how much: tokens, host names, quotas of agents, denials on record.

Enters: a request's headers, or what an agent asks for. Leaves: a principal, or a `Problem`. Read `auth.py` first.
"""
