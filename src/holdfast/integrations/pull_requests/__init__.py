"""Landing by pull request: pushes, the requests of GitHub and GitLab, and what comes back from them.

Enters: verified commits, and what a service shows of their pull requests. Leaves: messages for the outbox, and moves of
tasks. Read `forge.py` first, then `landing.py`, `publishers.py` and `poll.py`.
"""
