"""What became of the requests that Apprise made: that it failed is all that it says itself.

A message that was surely not taken may be sent again; one of which nobody knows may not. So this listens at the two
doors through which nearly all services are reached, `requests` and `smtplib`, while one message is being sent. What
leaves by another door and fails is unclear.
"""

from __future__ import annotations

import contextlib
import logging
import smtplib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal

from holdfast.errors import PublishFailed, PublishRefused, PublishUnclear

# `taken`: the service has it. `away`: it was not reached, or said that it could not. `refused`: it will not. `lost`:
# the request left, and no answer came.
Outcome = Literal["taken", "away", "refused", "lost"]
_NO_CONNECTION = ("NewConnectionError", "NameResolutionError", "ConnectTimeoutError")
# The doors are the process's: one message at a time.
_MUTEX = threading.Lock()


@contextlib.contextmanager
def watched() -> Iterator[list[Outcome]]:
    """Notes the outcome of each request that is made while here."""
    import requests.adapters

    seen: list[Outcome] = []
    with _MUTEX, contextlib.ExitStack() as ending:
        ending.enter_context(_silent("apprise"))
        ending.enter_context(_silent("urllib3"))
        ending.enter_context(_listening(requests.adapters.HTTPAdapter, "send", seen, _of_answer, _of_http_error))
        ending.enter_context(_listening(smtplib.SMTP, "connect", seen, lambda done: None, lambda error: "away"))
        ending.enter_context(_listening(smtplib.SMTP, "sendmail", seen, lambda done: "taken", _of_mail_error))
        yield seen


def judge(key: str, seen: list[Outcome]) -> PublishFailed | PublishRefused | PublishUnclear:
    """The error of a message that Apprise could not send."""
    if not seen or "lost" in seen or "taken" in seen:
        reason = "a part of it may have left" if seen else "the service does not say why it failed"
        return PublishUnclear(key=key, reason=reason)
    if "away" in seen:
        return PublishFailed(key=key, reason="the service could not be reached, or was not able to take it")
    return PublishRefused(key=key, reason="the service refused it; look at the address that the rule names")


def _of_answer(answer: Any) -> Outcome:
    status = int(answer.status_code)
    return "taken" if status < 400 else "away" if status >= 500 or status in (408, 425, 429) else "refused"


def _of_http_error(error: BaseException) -> Outcome:
    import requests.exceptions as kinds

    # What urllib3 calls the reason; it belongs to requests, and is named here rather than imported.
    inner = getattr(error.args[0], "reason", None) if error.args else None
    is_unsent = isinstance(error, kinds.ConnectTimeout | kinds.SSLError | kinds.ProxyError | kinds.InvalidURL)
    return "away" if is_unsent or type(inner).__name__ in _NO_CONNECTION else "lost"


def _of_mail_error(error: BaseException) -> Outcome:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = [code for code, _ in error.recipients.values()]
        return "refused" if all(code >= 500 for code in codes) else "away"
    if isinstance(error, smtplib.SMTPResponseException):
        return "refused" if error.smtp_code >= 500 else "away"
    return "lost"


@contextlib.contextmanager
def _listening(
    owner: Any,
    name: str,
    seen: list[Outcome],
    of_result: Callable[[Any], Outcome | None],
    of_error: Callable[[BaseException], Outcome],
) -> Iterator[None]:
    original = getattr(owner, name)

    def listening(*args: Any, **kwargs: Any) -> Any:
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            seen.append(of_error(error))
            raise
        if (outcome := of_result(result)) is not None:
            seen.append(outcome)
        return result

    setattr(owner, name, listening)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextlib.contextmanager
def _silent(name: str) -> Iterator[None]:
    """What a library logs may hold the address, and so a secret."""
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    children = [each for each in logging.Logger.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    quieted = [each for each in children if each.name.startswith(f"{name}.") and not each.disabled]
    for each in quieted:
        each.disabled = True
    try:
        yield
    finally:
        logger.disabled = before
        for each in quieted:
            each.disabled = False
