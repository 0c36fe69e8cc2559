"""What arrives from elsewhere becomes entries: a delivery, the tasks that rules ask for, and what every rule said.

Enters: events of `integrations/triggers`. Leaves: records in the journal, once for each delivery and each key. Read
`deliveries.py` first.
"""
