"""Recognises the kind of trouble in a CLI's error text, where it reports it as text only: one table for all of them.

Addresses are ignored, and only whole words match, since a number or a word may occur in any text.
"""

from __future__ import annotations

import functools
import re
from enum import StrEnum


class Trouble(StrEnum):
    """In the order in which they are searched: the more certain ones first."""

    NO_KEY = "no_key"
    USED_UP = "used_up"
    LIMITED = "limited"
    UNREACHABLE = "unreachable"
    OTHER = "other"


_PHRASES: dict[Trouble, tuple[str, ...]] = {
    Trouble.NO_KEY: (
        r"\b401 unauthorized\b",
        r"\b(?:status|code)\b\W{0,3}40[13]\b",
        r"\bunauthenticated\b",
        r"\bpermission_denied\b",
        r"\bnot logged in\b",
        r"\bmissing environment variable\b",
        r"\bmissing credentials\b",
        r"\bapi[ _]key(?: is| was)? (?:not (?:valid|found|set)|invalid|missing|expired)\b",
        r"\b(?:invalid|valid|missing|incorrect) api[ _]key\b",
        r"\bapi_key_invalid\b",
    ),
    Trouble.USED_UP: (
        r"\busage limit\b",
        r"\busage_limit_reached\b",
        r"\bquota (?:is |was |has been )?(?:exceeded|exhausted|reached|used up)\b",
        r"\binsufficient_quota\b",
        r"\b(?:exceeded|exhausted|reached)\b[^.]{0,40}\bquota\b",
        r"\bbilling\b",
        r"\binsufficient (?:funds|balance|credits?|quota)\b",
    ),
    Trouble.LIMITED: (
        r"\b429 too many requests\b",
        r"\btoo many requests\b",
        r"\brate[ -]limit(?:s|ed)?\b",
        r"\brate_limit_(?:error|exceeded)\b",
        r"\bresource_exhausted\b",
        r"\b(?:status|code)\b\W{0,3}429\b",
    ),
    Trouble.UNREACHABLE: (
        # No name, no way, no answer.
        r"\b(?:econn(?:refused|reset|aborted)|enotfound|eai_again|etimedout|epipe|enet(?:unreach|down)|ehostunreach)\b",
        r"\bund_err_[a-z_]+\b",
        r"\bgetaddrinfo\b|\bdns error\b|\bname resolution\b|\bname or service not known\b",
        r"\bfailed to lookup address\b|\b(?:could not|couldn't|cannot) resolve host\b|\bno such host\b",
        r"\b(?:api)?connection ?(?:was |is )?(?:refused|reset|closed|aborted|failed|error|timed out|timeout)\b",
        r"\b(?:unable to|cannot|can't|could not|failed to) connect\b",
        r"\bnetwork (?:error|is unreachable|connection (?:lost|failed))\b|\bwaiting for network\b",
        r"\bfetch failed\b|\bsocket hang up\b|\berror sending request\b|\bserver disconnected\b|\bpeer closed\b",
        r"\b(?:connect|connection|request|read|gateway) time(?:d )?-?out\b",
        r"\bstream closed before\b|\bidle timeout\b",
        # TLS.
        r"\b(?:tls|ssl)\b[^.]{0,40}\b(?:handshake|error|alert|failure)\b",
        r"\bcertificate (?:verify failed|has expired|is not yet valid)\b|\bself[- ]signed certificate\b",
        r"\bunable to (?:verify the first|get local issuer) certificate\b",
        r"\bwrong[ _]version[ _]number\b|\b(?:unknown_)?certificate_verif(?:y_failed|ication_error)\b",
        # The server itself.
        r"\b(?:status|code|api error|http)\b\W{0,3}(?:code\W{0,3})?5\d\d\b",
        r"\b5\d\d (?:internal server error|bad gateway|service unavailable|gateway time-?out|overloaded)\b",
        r"\b(?:internal server error|bad gateway|service (?:is )?(?:temporarily )?unavailable)\b",
        r"\boverloaded(?:_error)?\b|\bservers? (?:are|is) (?:down|overloaded|busy)\b",
        r"\b(?:internalserver|serviceunavailable|badgateway|apiconnection)error\b|\blitellm\.timeout\b",
    ),
}
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]{0,20}://\S+", re.IGNORECASE)
# A server whose answer could not be read was reached.
_ANSWERED = re.compile(r"\[200 OK\]", re.IGNORECASE)


def trouble(text: str, status: int = 0) -> Trouble:
    """`status`: of the server's answer, where it is known; it is more certain than any text."""
    if status in (401, 403):
        return Trouble.NO_KEY
    if status == 402:
        return Trouble.USED_UP
    if status == 429:
        return Trouble.USED_UP if is_used_up(text) else Trouble.LIMITED
    if status >= 500 or status == 408:
        return Trouble.UNREACHABLE
    return next((kind for kind in _PHRASES if _matches(kind, text)), Trouble.OTHER)


def _matches(kind: Trouble, text: str) -> bool:
    if kind is Trouble.UNREACHABLE and _ANSWERED.search(text):
        return False
    return _pattern(kind).search(_ADDRESS.sub(" ", text[:10_000])) is not None


@functools.cache
def _pattern(kind: Trouble) -> re.Pattern[str]:
    """Compiled on first use: most agents have no trouble."""
    return re.compile("|".join(_PHRASES[kind]), re.IGNORECASE)


def is_limited(text: str) -> bool:
    return _matches(Trouble.LIMITED, text)


def is_used_up(text: str) -> bool:
    return _matches(Trouble.USED_UP, text)


def is_unreachable(text: str) -> bool:
    return _matches(Trouble.UNREACHABLE, text)
