"""Tells people: what the journal says becomes messages, by the rules of the settings, through the one outbox.

Enters: durable entries, the rules of `notify:`, and addresses of Apprise by reference. Leaves: messages on the channels
`notification`, `repeated_notification` and `digest`. Read `events.py` first, then `rules.py` and `rule_followers.py`.
"""
