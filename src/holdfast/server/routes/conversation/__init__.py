"""What people say to agents, and agents to people: reviews of results.

Enters: a checked request. Leaves: a record for the answer, or a `Problem`. Read `reviews.py` first.
"""
