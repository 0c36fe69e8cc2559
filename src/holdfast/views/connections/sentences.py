"""The sentences of entries about what arrives from elsewhere and leaves to others."""

from __future__ import annotations

from typing import Any

from holdfast.views.phrases import Sentence, cut

_FLAGS = {
    "parked": "needs a person",
    "put_off": "is put off",
    "retry": "is sent again",
    "sent": "has left, a person says",
    "dropped": "is not sent, a person says",
}


def _message_flagged(inputs: dict[str, Any]) -> str:
    why = f": {cut(inputs['reason'])}" if inputs.get("reason") else ""
    return f"The message {inputs.get('key', '?')} {_FLAGS.get(str(inputs.get('how')), 'is changed')}{why}"


def _rule_switched(inputs: dict[str, Any]) -> str:
    is_on = inputs.get("how") == "enabled"
    return f"The rule {inputs.get('rule', '?')} " + (
        "fires again" if is_on else f"is set aside: {cut(inputs.get('reason', ''))}"
    )


SENTENCES: dict[str, Sentence] = {
    "message_queued": Sentence(
        "message {idempotency_key} queued for {channel}", "A message is to be sent by {channel}: {idempotency_key}"
    ),
    "message_flagged": Sentence("message {key} is {how}: {reason}", _message_flagged),
    "pull_request_published": Sentence(
        "{head:.12} is to be pushed to {branch}, with a pull request into {base}", "Goes to {base} by pull request"
    ),
    "pull_request_seen": Sentence(
        "pull request #{number} is {state}, checks {checks}: {due} {why}",
        lambda seen: (
            f"Its pull request #{seen.get('number', '?')} is {seen.get('state', '?')}"
            + (f": {cut(seen['why'])}" if seen.get("why") else "")
        ),
    ),
    "pull_request_steered": Sentence("its pull request may have {rounds_max} rounds", "May have {rounds_max} rounds"),
    "delivery_received": Sentence(
        "delivery {idempotency_key} received, {kind}, body {body:.12}", log="{kind} arrived: {idempotency_key}"
    ),
    "delivery_judged": Sentence(
        "delivery {delivery} judged: {outcomes} {own}", log="The rules were asked about {delivery}"
    ),
    "rule_switched": Sentence("rule {rule} {how}: {reason}", _rule_switched),
    "schedule_noted": Sentence("schedule {source} counts: {schedule}", log="The schedule {source} counts from now on"),
    "plugin_set_aside": Sentence(
        "the plugin {plugin} is set aside: {reason}",
        lambda aside: f"The plugin {aside.get('plugin')} is set aside: {cut(aside.get('reason', ''))}",
    ),
    "plugin_enabled": Sentence(
        "the plugin {plugin} is enabled again", lambda enabled: f"The plugin {enabled.get('plugin')} is enabled again"
    ),
}
