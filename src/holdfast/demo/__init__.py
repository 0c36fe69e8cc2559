"""`holdfast demo`: a dozen tasks are worked on, verified and landed, while orchestrator, agent and runner are killed.

A sample repository is made in a temporary folder: real git, agents that follow a script, a command that verifies each
task. `sample` makes it, `lives` kills and starts, `sums` compares at the end.

Nothing is killed by the clock. Every step of an agent leaves a line in a file outside of the repository, which nothing
ever takes back, and then waits, still in the middle of its turn, until the number of lines is allowed. So at the n-th
step somebody is at work for certain, and stays so until the kill is done. Kills during verification, landing and
refresh, and during recovery, are at named points of the program (`points.py`).
"""
