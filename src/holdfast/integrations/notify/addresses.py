"""Addresses of Apprise: read from where the settings say, and never shown."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from holdfast.config.secret_refs import read_secret
from holdfast.config.settings import Config
from holdfast.errors import AddressUnknown, HoldfastError
from holdfast.integrations.http.client import expect_extra

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class AddressTrouble(msgspec.Struct, frozen=True):
    said: str
    next: str


def service_at(ref: str, folder: Path) -> Any:
    """The service that a reference leads to, as Apprise has it. Raises SecretMissing, ExtraMissing, AddressUnknown."""
    url = read_secret(ref, folder)
    expect_extra("apprise", "connect")
    import apprise

    before = logging.root.manager.disable
    # What Apprise logs of an address that it does not know is the address.
    logging.disable(logging.CRITICAL)
    try:
        found = apprise.Apprise.instantiate(url)
    finally:
        logging.disable(before)
    if found is None:
        raise AddressUnknown(ref=ref)
    return found


def service_name(service: Any) -> str:
    return str(service.service_name or type(service).__name__)


def troubles(config: Config, folder: Path) -> list[AddressTrouble]:
    """What would keep notifications back: for `holdfast doctor`. Sends nothing."""
    found = []
    for rule in config.notify:
        for ref in rule.to:
            try:
                service_at(ref, folder)
            except HoldfastError as error:
                found.append(AddressTrouble(f"The rule {rule.name}: {error}", f"holdfast notify test {rule.name}"))
    if config.page_url is not None:
        with contextlib.suppress(ValueError):
            name = (urlsplit(config.page_url).hostname or "").lower()
            if name not in {*LOOPBACK, config.server.host.lower(), *(each.lower() for each in config.server.names)}:
                said = f"page_url leads to {name}, and the server does not answer to that name: links come to nothing."
                found.append(AddressTrouble(said, f"add {name} to server.names in config/settings.yaml"))
    return found
