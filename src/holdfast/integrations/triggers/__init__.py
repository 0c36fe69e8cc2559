"""Events from elsewhere: each source verifies a delivery and makes one form of it, and rules say which task follows.

Enters: headers and bodies of strangers, `config/triggers.yaml`. Leaves: a `TriggerEvent`, and for each rule whether it
fires and the definition that it asks for. Nothing here writes. Read `event.py` first, then `rules.py`.
"""
