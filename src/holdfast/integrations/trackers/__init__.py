"""Issue trackers: their issues become files in `backlog/issues/`, and what became of the tasks is said there.

Enters: answers of GitHub, GitLab, Jira and Linear, and entries of the journal. Leaves: task files, cancellations, and
messages in the outbox. Read `tracker.py` first, then `source_rounds.py`, `issue_plan.py`, `sync.py`, `write_back.py`.
"""
