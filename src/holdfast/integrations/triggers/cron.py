"""Schedules: an event at each moment of a cron expression, in a time zone, also for moments that no run has seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal
from zoneinfo import ZoneInfo

import msgspec

from holdfast.errors import SignatureRefused
from holdfast.integrations.triggers.event import (
    Delivery,
    Handshake,
    TriggerEvent,
    decode_object,
    expect_module,
    text_at,
)

CatchUp = Literal["none", "last", "all"]
# A moment that is seen this much later was missed: no run was alive, or the machine slept.
LATE_S = 120.0
# Of `catch_up: all`. What is older is left out, and a note says so.
SLOTS_MAX = 1000


class CronSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`schedule`: five fields, as cron has them. `zone`: such as Europe/Berlin. `catch_up`: what becomes of moments at
    which no run was alive: none of them, the last one, or all."""

    schedule: str
    type: Literal["cron"] = "cron"
    zone: str = "UTC"
    catch_up: CatchUp = "none"

    def __post_init__(self) -> None:
        expect_module("cronsim")
        from cronsim import CronSim, CronSimError

        try:
            zone = ZoneInfo(self.zone)
        except (KeyError, OSError, ValueError):
            raise ValueError(f"there is no time zone {self.zone!r}; write it as in Europe/Berlin") from None
        try:
            next(CronSim(self.schedule, datetime(2026, 1, 1, tzinfo=zone)))
        except (CronSimError, StopIteration):
            raise ValueError(f"{self.schedule!r} is no schedule; write it as in 0 3 * * 1-5") from None


class CronSource:
    settings_type: ClassVar[type[msgspec.Struct]] = CronSettings
    hears: ClassVar[bool] = False
    body_bytes_max: ClassVar[int] = 0
    is_known_by_body = False

    def __init__(self, name: str, settings: CronSettings) -> None:
        self.name, self.settings = name, settings
        self.ours: tuple[str, ...] = ()

    @property
    def kept_headers(self) -> tuple[str, ...]:
        return ()

    @property
    def secret_refs(self) -> tuple[str, ...]:
        return ()

    def verify(self, delivery: Delivery, secrets: Mapping[str, str], now: float) -> None:
        raise SignatureRefused(reason="a schedule takes no deliveries")

    def handshake(self, delivery: Delivery) -> Handshake | None:
        return None

    def answer(self, tasks: list[str]) -> dict[str, Any] | None:
        return None

    def normalise(self, delivery: Delivery) -> TriggerEvent:
        payload = decode_object(delivery.body)
        moment = text_at(payload, "moment")
        return TriggerEvent(
            source=self.name,
            kind="cron",
            id=moment,
            title=f"{self.name} at {text_at(payload, 'local') or moment}",
            digest=delivery.digest,
            payload=payload,
        )

    @property
    def text(self) -> str:
        """What counts as the same schedule: a changed one begins anew."""
        return f"{self.settings.schedule} {self.settings.zone}"

    def body_of(self, slot: float) -> bytes:
        """The body of the delivery for a moment: the same for the same moment, whenever it is made."""
        moment = datetime.fromtimestamp(slot, UTC)
        local = moment.astimezone(ZoneInfo(self.settings.zone))
        said = {"moment": moment.strftime("%Y-%m-%dT%H:%M:%SZ"), "local": local.isoformat(), "schedule": self.text}
        return msgspec.json.encode(said)

    def due(self, last: float, now: float) -> tuple[list[float], int]:
        """The moments behind `last` that are to be delivered now, and how many are left out."""
        found = list(self._slots(last, now))
        on_time = [slot for slot in found if now - slot <= LATE_S]
        missed = found[: len(found) - len(on_time)]
        match self.settings.catch_up:
            case "none":
                kept: list[float] = []
            case "last":
                kept = missed[-1:] if not on_time else []
            case "all":
                kept = missed[-SLOTS_MAX:]
        return [*kept, *on_time], len(missed) - len(kept)

    def next_after(self, moment: float) -> float:
        return next(self._after(moment))

    def _slots(self, last: float, now: float) -> Iterator[float]:
        # Of many years the newest will do.
        begin = max(last, now - 400 * 86_400.0)
        for slot in self._after(begin):
            if slot > now:
                return
            yield slot

    def _after(self, moment: float) -> Iterator[float]:
        from cronsim import CronSim

        begin = datetime.fromtimestamp(moment, ZoneInfo(self.settings.zone))
        # Of two equal local times, when a clock is put back, it gives the first: never one behind `moment`.
        for found in CronSim(self.settings.schedule, begin - timedelta(hours=2)):
            if (slot := found.timestamp()) > moment:
                yield slot
