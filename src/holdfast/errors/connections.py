"""Errors of what arrives from elsewhere and leaves to others: messages, services, triggers, trackers, pull requests."""

from __future__ import annotations

from holdfast.errors.base import HoldfastError, InputError

# -- messages ---------------------------------------------------------------------------------------------------------


class PublishFailed(HoldfastError, exit_code=22):
    """The message {key} was not sent: {reason}. It is kept, and sent again by itself; `holdfast outbox` shows it."""


class PublishRefused(HoldfastError, exit_code=22):
    """The message {key} was refused: {reason}. It is kept; mend that, then type `holdfast outbox --retry {key}`, or
    `--drop {key}` to give it up."""


class PublishUnclear(HoldfastError, exit_code=22):
    """Nobody knows whether the message {key} was sent: {reason}. It is kept; where its receiver can be asked, that is
    done before it is sent again. Otherwise type `holdfast outbox --sent {key}` or `--retry {key}`."""


class AddressUnknown(InputError):
    """What {ref} holds is no address that Apprise knows. Nothing was sent; put one there such as ntfy://host/topic or
    slack://…, without quotes."""


class NotifyRuleUnknown(InputError):
    """There is no rule {rule!r} in the setting `notify`. Nothing was sent; {known}."""


class MessageUnknown(InputError):
    """There is no message {key!r} in the outbox. Nothing was changed; `holdfast outbox` lists those that wait."""


class PullRequestsUnset(InputError):
    """No pull request can be opened: {reason}. The work is kept; {way} in config/settings.yaml."""


class PushRefused(HoldfastError, exit_code=22):
    """The remote {remote} refused {what}: {reason}. Nothing was overwritten there; {way}."""


# -- services of others -----------------------------------------------------------------------------------------------


class SecretMissing(InputError):
    """The secret {ref} cannot be read: {reason}. Nothing was changed; set it, or name another in the settings."""


class SourceUnknown(InputError):
    """There is no source {source!r} in the settings; known are {known}. Nothing was changed; docs/trackers.md says how
    one is named."""


class NobodySyncs(HoldfastError, exit_code=9):
    """No run is alive that asks the issue trackers. Nothing was changed; type `holdfast sync`."""


class ServiceAway(HoldfastError, exit_code=22):
    """{service} could not be asked ({asked}): {reason}. Nothing was done there; it is asked again by itself."""


class AnswerLost(HoldfastError, exit_code=22):
    """{service} was asked ({asked}), and its answer was lost: {reason}. It may have done it; it is asked before
    anything is repeated."""


class ServiceLimited(HoldfastError, exit_code=22):
    """{service} wants no more requests for now ({asked}). Nothing was done there; it is asked again when its limit is
    over."""


class ServiceRefused(HoldfastError, exit_code=22):
    """{service} refused ({asked}) with {status}: {detail}. Nothing was changed there."""
