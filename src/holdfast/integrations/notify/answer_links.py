"""One-time links: each allows one answer to one question, until it expires, and nothing else.

A token holds the question, the answer and the expiry, signed with the server's secret. It is made when a message is
sent, and stands in no journal. Revoking the operator's tokens makes it worthless, too. That it counts only once is the
question's doing: it takes one answer.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from hashlib import sha256

import msgspec

from holdfast.errors import AnswerLinkDead, AnswerLinkUnknown
from holdfast.layout import Layout
from holdfast.questions.records import AnswerKind
from holdfast.storage.records.server_secret import ServerSecret, load_secret

LABELS: dict[str, str] = {"allow": "Allow", "deny": "Deny", "say": "Answer"}
TOKEN_CHARS_MAX = 1000


class AnswerClaim(msgspec.Struct, frozen=True, array_like=True):
    question: str
    answer: AnswerKind
    expires: float


def token_of(secret: ServerSecret, claim: AnswerClaim) -> str:
    head = base64.urlsafe_b64encode(msgspec.json.encode(claim)).decode().rstrip("=")
    return f"{head}.{_sign(secret, head)}"


def claim_of(layout: Layout, token: str, now: float) -> AnswerClaim:
    """What a token allows. Raises AnswerLinkUnknown for one that is none of ours, and AnswerLinkDead."""
    head, _, signed = token.partition(".")
    secret = load_secret(layout)
    if len(token) > TOKEN_CHARS_MAX or not hmac.compare_digest(signed.encode(), _sign(secret, head).encode()):
        raise AnswerLinkUnknown
    try:
        found = msgspec.json.decode(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)), type=AnswerClaim)
    except (msgspec.DecodeError, binascii.Error, ValueError):
        raise AnswerLinkUnknown from None
    if now >= found.expires:
        raise AnswerLinkDead(question=found.question)
    return found


def links(layout: Layout, page_url: str, question: str, answers: list[str], expires: float) -> list[tuple[str, str]]:
    """Label and address of each answer."""
    secret = load_secret(layout)
    made = ((each, token_of(secret, msgspec.convert((question, each, expires), AnswerClaim))) for each in answers)
    return [(LABELS[each], f"{page_url.rstrip('/')}/answer/{token}") for each, token in made]


def _sign(secret: ServerSecret, head: str) -> str:
    words = f"answer\0{secret.operator}\0{head}"
    return hmac.new(secret.secret.encode(), words.encode(), sha256).hexdigest()
