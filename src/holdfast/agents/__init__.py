"""Agents, and the runner that lets one work on an attempt, whatever becomes of the orchestrator.

Walk it as a start does: `runner` takes the start → `environment` and `sandbox` say how the agent is called → `child`
is its process → `streams` makes typed events of what it says → `conversation` finds the turns in them → `record` makes
each turn durable → `limits` says when it is enough. `registry` has the agents themselves, for the engine.
"""
