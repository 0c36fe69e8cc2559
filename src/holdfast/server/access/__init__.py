"""Access to the API: tokens, host names, quotas of agents, and denials on record.

Enters: a request's headers, or what an agent asks for. Leaves: a principal, or a `Problem`. Read `auth.py` first.
"""
