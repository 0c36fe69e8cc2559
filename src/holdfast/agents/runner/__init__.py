"""The process that lets one agent work on one attempt, and makes each of its turns durable before the agent goes on.

Enters: an order. Leaves: the attempt's folder, with turns, output, spending, and how the start ended.
It outlives the orchestrator. Read `runner.py` first, then `attempt_writer.py`.
"""
