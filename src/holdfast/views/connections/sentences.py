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


SENTENCES: dict[str, Sentence] = {
    "message_queued": Sentence(
        "message {idempotency_key} queued for {channel}", "A message is to be sent by {channel}: {idempotency_key}"
    ),
    "message_flagged": Sentence("message {key} is {how}: {reason}", _message_flagged),
}
