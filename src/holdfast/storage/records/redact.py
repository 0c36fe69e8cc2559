"""Keeps secrets out of ledgers: writes `[redacted]` for what looks like a secret, or is known to be one.

Three rules, applied to every string of a record, keys included, at any depth:

- a *registered* value is replaced wherever it occurs, also in the forms that programs print it in: JSON-escaped (once
  and twice), as Python's repr, percent-encoded. Values shorter than 6 characters would blank ordinary words, and are
  ignored;
- a well-known *shape* is replaced: keys of the large providers, bearer tokens, JWTs, private key blocks, credentials in
  a URL, and `password=…` or `"token": "…"` pairs inside longer text;
- the value under a *name* like `password`, `api_key` or `authorization` is replaced, whatever it is. Under a name that
  ends in `token` a number stays, and so does everything under `tokens` or `token_count`: those are counts.

This is a net, not a proof: a secret that was never registered and has no known shape passes through it. Every pattern
takes linear time: repetitions are possessive or bounded, and a failed match has read a few characters only.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

REDACTED = "[redacted]"
SECRET_CHARS_MIN = 6
# How much of a line, or of a key block, is held back until its end comes.
HELD_BYTES_MAX = 1 << 20

_NAME_ENDINGS = (
    *("password", "passwords", "passwd", "passphrase", "secret", "secrets", "token", "authorization"),
    *("cookie", "cookies", "credential", "credentials"),
    *(f"{kind}key{plural}" for kind in ("api", "access", "secret", "private", "signing") for plural in ("", "s")),
)


class _Shape(NamedTuple):
    hints: tuple[str, ...]  # one of them is in every match: looking for a plain string is far cheaper than a pattern
    pattern: str  # compiled where a hint is found first: most processes never see one
    replacement: str = REDACTED


# A key begins a word, or follows the letter of an escape such as the two characters `\n` inside quoted JSON.
_START = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"

_SHAPES = (
    _Shape(
        ("PRIVATE KEY",),
        # Up to the closing dashes; a block that was cut short is a secret all the same.
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[^-]++|-(?!----))*+(?:-----END [A-Z0-9 ]{0,60}-----)?",
    ),
    _Shape(("sk-",), _START + r"sk-[A-Za-z0-9_-]{16,}+"),
    _Shape(("sk_", "rk_"), _START + r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}+"),
    _Shape(("whsec_",), _START + r"whsec_[A-Za-z0-9+/=]{24,}+"),
    _Shape(("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{20,}+"),
    _Shape(("github_pat_",), r"github_pat_[A-Za-z0-9_]{20,}+"),
    _Shape(("glpat-",), r"glpat-[A-Za-z0-9_.-]{16,}+"),
    _Shape(("gldt-", "glrt-", "glptt-", "glcbt-", "gloas-"), r"gl(?:dt|rt|ptt|cbt|oas)-[A-Za-z0-9_.-]{16,}+"),
    _Shape(("xox",), r"xox[abeoprs]-[A-Za-z0-9-]{10,}+"),
    _Shape(("xapp-",), _START + r"xapp-[0-9]-[A-Za-z0-9-]{16,}+"),
    _Shape(
        ("hooks.slack.com/", "/api/webhooks/"),
        r"(?P<kept>hooks\.slack\.com/[a-z]{1,20}/|discord(?:app)?\.com/api/webhooks/)[A-Za-z0-9_/-]{16,}+",
        rf"\g<kept>{REDACTED}",
    ),
    # With the secret that belongs to it, where that is printed beside it.
    _Shape(("AKIA", "ASIA"), r"A[KS]IA[A-Z0-9]{16}(?:[\s,;:|\"'=]{1,8}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=]))?"),
    _Shape(("AIza",), r"AIza[A-Za-z0-9_-]{30,}+"),
    # The tokens of our own server; an agent's has its attempt in it.
    _Shape(("hfo_", "hfr_", "hfa_"), _START + r"hf[ora]_[^\s\"'\\/<>&]{40,}+"),
    _Shape(("npm_", "hf_"), _START + r"(?:npm|hf)_[A-Za-z0-9]{30,}+"),
    _Shape(("pypi-",), _START + r"pypi-[A-Za-z0-9_-]{40,}+"),
    _Shape(("GOCSPX-", "ya29."), _START + r"(?:GOCSPX-|ya29\.)[A-Za-z0-9_-]{20,}+"),
    _Shape(("SG.",), _START + r"SG\.[A-Za-z0-9_-]{16,64}+\.[A-Za-z0-9_-]{16,}+"),
    _Shape(("SK",), r"SK(?<![A-Za-z0-9_]SK)[0-9a-f]{32}(?![A-Za-z0-9])"),
    _Shape((":AA",), r"(?<![A-Za-z0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])"),
    _Shape(
        ("dop_v1_", "dckr_pat_", "shpat_", "shpss_", "lin_api_", "ntn_", "gsk_", "glsa_", "sbp_", "figd_", "tskey-"),
        _START + r"(?:dop_v1_|dckr_pat_|shpat_|shpss_|lin_api_|ntn_|gsk_|glsa_|sbp_|figd_|tskey-)[A-Za-z0-9_-]{24,}+",
    ),
    _Shape(("xai-", "pplx-", "r8_", "dapi"), _START + r"(?:(?:xai|pplx)-|r8_)[A-Za-z0-9]{30,}+|\bdapi[0-9a-f]{32}\b"),
    _Shape(("hvs.", "hvb."), _START + r"hv[sb]\.[A-Za-z0-9_-]{24,}+"),
    _Shape(("ATATT3",), _START + r"ATATT3[A-Za-z0-9_=-]{40,}+"),
    _Shape(("AGE-SECRET-KEY-1",), r"AGE-SECRET-KEY-1[A-Z0-9]{20,}+"),
    _Shape(("eyJ",), _START + r"eyJ[A-Za-z0-9_-]{5,}+\.[A-Za-z0-9_-]{5,}+\.[A-Za-z0-9_-]*+"),
    _Shape(
        ("earer", "EARER"),
        r"\b(?P<kept>[Bb]earer|BEARER)(?P<gap>\s{1,4}|%20)[A-Za-z0-9._~+/=-]{8,}+",
        rf"\g<kept>\g<gap>{REDACTED}",
    ),
    _Shape(
        ("://",),
        r"://(?:(?P<user>[^\s/:@\"']*+):[^\s/@\"']++|[^\s/:@\"']{20,}+)@",
        rf"://\g<user>:{REDACTED}@",
    ),
    _Shape(
        ("ookie", "OOKIE"),
        r"(?i)(?P<kept>cookie[\"']?\s{0,4}:\s{0,4})[^\r\n\"']{6,}+",
        rf"\g<kept>{REDACTED}",
    ),
)

_SHAPES_BY_HINT = [(hint, shape.pattern, shape.replacement) for shape in _SHAPES for hint in shape.hints]
_SHAPE_CHARS_MIN = len("://a:b@")

_SCHEMES = ("basic", "bearer", "digest", "token")
_PAIR_HINTS = (
    "passw",
    "passphrase",
    "secret",
    "token",
    "key",
    "authorization",
    "credential",
    "_pass",
    "_pwd",
    ":_auth",
)
_PAIR = (
    # The first letters stand alone and without a flag: so the search jumps from one to the next, several times as fast.
    r"""(?x)
    (?P<name> [aAcCpPsStT] (?i:
        (?<=p) (?: assword | asswd | assphrase | rivate[_-]?key )
      | (?<=s) (?: ecret (?:[_-]?key)? | igning[_-]?key )
      | (?<=t) oken
      | (?-i: (?<=_P) (?: ASS | WD ) )
      | (?<=a) (?: uthorization | (?:pi|ccess|ccount)[_-]?key )
      | (?<=:_a) uth
      | (?<=c) redentials? ) )
    (?P<between> \\{0,3}["']? \s{0,4} (?: [:=] | => ) \s{0,4} )
    (?: (?P<open_escaped> \\{1,3}["'] ) (?P<escaped> (?: [^"'\\\r\n]++ | \\++(?!["'\\]) )++ )
      | " (?P<double> (?: [^"\\\r\n]++ | \\. )++ )
      | ' (?P<single> (?: [^'\\\r\n]++ | \\. )++ )
      | (?P<scheme> (?i:basic|bearer|digest|token) \s{1,4} )?
        (?P<bare> [^\s"'\\&;,<>(){}\[\]]{4,}+ ) (?P<code> [(\[{]? )
    )"""
)
_VARIABLE = r"\$[A-Z_][A-Z0-9_]*"


class Scrubber:
    """Replaces secrets in a record. `environ`: each value whose variable is named like a secret is registered too."""

    def __init__(self, secrets: Iterable[str] = (), environ: Mapping[str, str] = os.environ) -> None:
        self._known: tuple[str, ...] = ()
        self._numbers: frozenset[str] = frozenset()
        self._key = functools.lru_cache(maxsize=2048)(self._clean_key)
        self.register(*secrets, *(value for name, value in environ.items() if is_secret_name(name)))

    def register(self, *secrets: str) -> None:
        """Adds values to look for, such as a token that was made while the program runs."""
        taken = {text for text in map(str.strip, secrets) if len(text) >= SECRET_CHARS_MIN and text not in REDACTED}
        forms = {form for secret in taken for form in _printed_forms(secret)}
        # Longest first: a secret that contains another is replaced whole.
        self._known = tuple(sorted(forms.union(self._known), key=lambda form: (-len(form), form)))
        self._numbers = frozenset(form for form in self._known if form[0] in "-0123456789")
        self._key.cache_clear()

    def clean(self, value: Any) -> Any:
        """A copy of `value` without its secrets: mappings become dicts, lists and tuples lists, the rest stays."""
        return self._clean(value, under=None)

    def clean_text(self, text: str) -> str:
        for secret in self._known:
            if secret in text:
                text = text.replace(secret, REDACTED)
        if len(text) < _SHAPE_CHARS_MIN:
            return text
        for hint, pattern, replacement in _SHAPES_BY_HINT:
            if hint in text:
                text = re.sub(pattern, replacement, text)
        lowered = text.lower()
        for hint in _PAIR_HINTS:
            if hint in lowered:
                return re.sub(_PAIR, _without_pair_value, text)
        return text

    def clean_bytes(self, data: bytes) -> bytes:
        return self.clean_text(data.decode(errors="surrogateescape")).encode(errors="surrogateescape")

    def _clean(self, value: Any, under: str | None) -> Any:
        """`under`: the secret name that `value` is below, if any."""
        if isinstance(value, str):
            return self.clean_text(value) if under is None or not value else REDACTED
        if isinstance(value, (int, float)):
            hidden = under is not None and not isinstance(value, bool) and not _is_token(under)
            return REDACTED if hidden or (self._numbers and str(value) in self._numbers) else value
        if isinstance(value, (dict, Mapping)):
            return self._clean_mapping(value, under)
        if isinstance(value, (list, tuple)):
            return [self._clean(item, under) for item in value]
        return value

    def _clean_mapping(self, mapping: Mapping[Any, Any], under: str | None) -> dict[Any, Any]:
        cleaned: dict[Any, Any] = {}
        for name, value in mapping.items():
            key, is_secret = self._key(name) if isinstance(name, str) else (name, False)
            while key in cleaned:  # two names that held secrets: both values are kept
                key += "'"
            cleaned[key] = self._clean(value, under or (name if is_secret else None))
        return cleaned

    def _clean_key(self, name: str) -> tuple[str, bool]:
        return self.clean_text(name), is_secret_name(name)


class Flow:
    """Removes secrets from bytes that come in pieces: holds back what may be a part of one until its line, or its key
    block, is complete. One that never ends is released at HELD_BYTES_MAX."""

    def __init__(self, scrubber: Scrubber) -> None:
        self._scrubber = scrubber
        self._held = bytearray()

    def feed(self, data: bytes) -> bytes:
        self._held += data
        # A piece without a line's end releases nothing, however many come.
        return self._release(self._ready(len(data)))

    def rest(self) -> bytes:
        return self._release(len(self._held))

    def _ready(self, new: int) -> int:
        end = self._held.rfind(b"\n", len(self._held) - new) + 1
        if len(self._held) > HELD_BYTES_MAX:
            # No secret is as long: none reaches across its last blank.
            return max(end, self._held.rfind(b" ", len(self._held) - HELD_BYTES_MAX // 2) + 1) or len(self._held)
        begun = self._held.rfind(b"-----BEGIN ", 0, end)
        is_open = b"PRIVATE KEY" in self._held[begun : begun + 80] and self._held.find(b"-----END ", begun, end) < 0
        return begun if begun >= 0 and is_open else end

    def _release(self, size: int) -> bytes:
        ready = bytes(self._held[:size])
        del self._held[:size]
        return self._scrubber.clean_bytes(ready) if ready else b""


@functools.cache
def usual() -> Scrubber:
    """The scrubber for every stored text of an agent or a gate: it knows this process's own secrets, too."""
    return Scrubber()


def without_secrets(text: str) -> str:
    return usual().clean_text(text)


def is_secret_name(name: str) -> bool:
    """True for `password`, `GITHUB_TOKEN`, `x-api-key`, `clientSecret`; not for `tokens`, `token_count`, `key`."""
    return re.sub(r"[^a-z]", "", name.lower()).endswith(_NAME_ENDINGS)


def _is_token(name: str) -> bool:
    return name.lower().endswith("token")


def _printed_forms(secret: str) -> set[str]:
    once = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    twice = {json.dumps(form)[1:-1] for form in once}
    return {secret, repr(secret)[1:-1], quote(secret, safe="", errors="replace"), *once, *twice}


def _without_pair_value(found: re.Match[str]) -> str:
    value = found["escaped"] or found["double"] or found["single"] or found["bare"]
    counts = _is_token(found["name"]) and value.replace(".", "").isdigit()
    # `token = read_token()` and `password=$PASSWORD` are program text; a lone `Bearer` lost its token to a shape.
    if counts or found["code"] or re.fullmatch(_VARIABLE, value) or value.lower() in _SCHEMES:
        return found[0]
    head = found["name"] + found["between"]
    if found["open_escaped"]:
        return f"{head}{found['open_escaped']}{REDACTED}"
    if found["double"]:
        return f'{head}"{REDACTED}'
    if found["single"]:
        return f"{head}'{REDACTED}"
    return f"{head}{found['scheme'] or ''}{REDACTED}"
