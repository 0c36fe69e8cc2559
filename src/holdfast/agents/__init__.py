"""Agents, and the runner that lets one work on an attempt, whatever becomes of the orchestrator.

Walk it as a start does: `runner` takes the start → `environment` and `sandbox` say how the agent is called → `child`
is its process → `streams` makes typed events of what it says → `conversation` finds the turns in them → `record` makes
each turn durable, while `hook` lets the agent wait → `limits` says when it is enough → `verdicts` says how it ended.
`registry` has the agents themselves, for the engine: one file for each CLI, on top of `cli` and `said`.
"""
