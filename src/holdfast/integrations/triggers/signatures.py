"""Proofs that a delivery is from its sender: HMACs, shared tokens, Ed25519, and how old a delivery may be."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import math
from collections.abc import Collection

from holdfast.errors import SignatureRefused

# How far the sender's clock and ours may be apart, as the services themselves advise.
AGE_S_MAX = 300.0


def expect_hmac(secret: str, content: bytes, given: str, *, prefix: str = "", encoding: str = "hex") -> None:
    """`given` is the header's value: the HMAC-SHA256 of the content, behind a prefix."""
    made = hmac.new(secret.encode(), content, hashlib.sha256).digest()
    wanted = made.hex() if encoding == "hex" else base64.b64encode(made).decode()
    expect_same(f"{prefix}{wanted}", given)


def expect_same(wanted: str, given: str) -> None:
    if not given:
        raise SignatureRefused(reason="it has no signature")
    if not hmac.compare_digest(wanted.encode(), given.encode()):
        raise SignatureRefused(reason="its signature is wrong")


def expect_one_of(wanted: str, given: Collection[str]) -> None:
    if not any(hmac.compare_digest(wanted.encode(), each.encode()) for each in given):
        raise SignatureRefused(reason="its signature is wrong" if given else "it has no signature")


def expect_fresh(timestamp: str, now: float) -> None:
    """Without this, a recorded delivery could be sent again at any time, under another id."""
    try:
        moment = float(timestamp)
    except ValueError:
        raise SignatureRefused(reason="it has no time") from None
    if not math.isfinite(moment) or abs(now - moment) > AGE_S_MAX:
        raise SignatureRefused(reason=f"its time is more than {AGE_S_MAX:g} s off")


def expect_ed25519(public_key: str, content: bytes, given: str) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if not given:
        raise SignatureRefused(reason="it has no signature")
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(bytes.fromhex(given), content)
    except (InvalidSignature, ValueError, binascii.Error):
        raise SignatureRefused(reason="its signature is wrong") from None
