"""What kind of trouble a CLI's words tell of, where it says so in words only.

Addresses are not looked at, and nothing counts that is only part of a word: a number or a word may stand in any text.
"""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]{0,20}://\S+", re.IGNORECASE)
_LIMITED = re.compile(
    r"\b429 too many requests\b|\btoo many requests\b|\brate[ -]limit(?:s|ed)?\b|\brate_limit_(?:error|exceeded)\b"
    r"|\bresource_exhausted\b|\b(?:status|code)\b\W{0,3}429\b",
    re.IGNORECASE,
)
_USED_UP = re.compile(
    r"\busage limit\b|\bquota (?:is |was |has been )?(?:exceeded|exhausted|reached|used up)\b|\binsufficient_quota\b"
    r"|\b(?:exceeded|exhausted|reached)\b[^.]{0,40}\bquota\b|\bbilling\b"
    r"|\binsufficient (?:funds|balance|credits?|quota)\b",
    re.IGNORECASE,
)
_NO_KEY = re.compile(
    r"\b401 unauthorized\b|\b(?:status|code)\b\W{0,3}40[13]\b|\bunauthenticated\b|\bpermission_denied\b"
    r"|\bnot logged in\b"
    r"|\bmissing environment variable\b|\bapi[ _]key(?: is| was)? (?:not (?:valid|found|set)|invalid|missing|expired)\b"
    r"|\b(?:invalid|valid|missing|incorrect) api[ _]key\b|\bapi_key_invalid\b",
    re.IGNORECASE,
)


def is_limited(told: str) -> bool:
    return _LIMITED.search(_plain(told)) is not None


def is_used_up(told: str) -> bool:
    return _USED_UP.search(_plain(told)) is not None


def has_no_key(told: str) -> bool:
    return _NO_KEY.search(_plain(told)) is not None


def _plain(told: str) -> str:
    return _ADDRESS.sub(" ", told[:10_000])
