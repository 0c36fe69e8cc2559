"""The process that runs one agent on one attempt, and makes each of its turns durable before the agent continues.

Enters: an order. Leaves: the attempt's folder, with turns, output, spending, and how the start ended.
It outlives the orchestrator. Read `runner.py` first, then `attempt_writer.py`.
"""
