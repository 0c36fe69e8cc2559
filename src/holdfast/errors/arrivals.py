"""The errors of what arrives from elsewhere: deliveries, and the rules of triggers."""

from __future__ import annotations

from holdfast.errors.base import HoldfastError, InputError


class SignatureRefused(HoldfastError, exit_code=22):
    """The delivery was refused: {reason}. Nothing was kept of it; see the source's secret in config/triggers.yaml."""


class DeliveryUnreadable(InputError):
    """The delivery cannot be used: {reason}. Nothing was changed; see that the service sends JSON."""


class DeliveryUnknown(InputError):
    """There is no delivery {delivery!r} in the journal. Nothing was changed; `holdfast triggers history` lists them."""


class DeliveryBodyGone(InputError):
    """The body of the delivery {delivery!r} is no longer kept: {reason}. Nothing was changed; have its sender deliver
    it again."""


class RuleUnknown(InputError):
    """There is no rule {rule!r} in {path}. Nothing was changed; `holdfast triggers list` shows the rules."""


class PatternInvalid(InputError):
    """The pattern {pattern!r} cannot be used: {reason}. Nothing was changed."""


class TriggersUnusable(InputError):
    """{place}: {reason}. Nothing was changed: a living run goes on with the rules that it has read, and one that begins
    before the file is mended has none; `holdfast triggers list` reads it again."""
