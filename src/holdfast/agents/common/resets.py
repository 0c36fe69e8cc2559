"""Parses when a limit ends from a CLI's text: a duration, or a time of day, here or in a named zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNIT = r"(?:ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)(?![a-z])"
_NUMBER = rf"(\d{{1,9}}(?:\.\d{{1,6}})?)\s?({_UNIT})"
_PART = rf"\d{{1,9}}(?:\.\d{{1,6}})?\s?{_UNIT}[\s,]*(?:and\s)?"
_AGAIN = r"\b(?:again|retry|resets?|wait|available)\b[a-z ]{0,20}?\s"
# As text: compiled only where a limit was reported.
_LENGTH = rf"(?i){_AGAIN}(?:in|after|for)\s+((?:{_PART}){{1,5}})"
_FIELD = r"""(?i)["']?(?:resets?_in_seconds|retry[-_]after|retryDelay)["']?\s*[:=]\s*["']?(\d{1,9}(?:\.\d{1,6})?)s?\b"""
_UNIX = r"""(?i)(?:\||["']?resets?_?at["']?\s*[:=]\s*)(\d{10})\b"""
_WHEN = r"\b(?:again|resets?|until|available)\b[a-z ]{0,12}?\s"
_CLOCK = r"(\d{1,2})(?::(\d{2}))? ?([ap]m)?"
_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DATE = rf"(?i){_WHEN}(?:at |on )?{_MONTH} (\d{{1,2}})(?:st|nd|rd|th)?,? (?:(\d{{4}}),? )?(?:at )?{_CLOCK}"
_TIME = rf"(?i){_WHEN}(?:at )?{_CLOCK}\b(?! ?[a-z%])"
_ZONE = r"\(([A-Za-z_]+(?:/[A-Za-z_+-]+){0,2})\)"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def until(text: str, now: float) -> float:
    """Unix seconds; 0 where the text does not say it."""
    text = text[:10_000]
    if found := re.search(_UNIX, text):
        return float(found[1])
    if found := re.search(_FIELD, text):
        return now + float(found[1])
    if found := re.search(_LENGTH, text):
        parts = ((float(number), unit.lower()) for number, unit in re.findall(_NUMBER, found[1], re.IGNORECASE))
        seconds = (each * (0.001 if unit.startswith(("ms", "milli")) else _UNITS[unit[0]]) for each, unit in parts)
        return now + sum(seconds)
    return _moment(text, now)


def _moment(text: str, now: float) -> float:
    """A date with a time, or the next such time of day."""
    here = datetime.fromtimestamp(now, _zone(text))
    if found := re.search(_DATE, text):
        month, day, year = _MONTHS.index(found[1].lower()) + 1, int(found[2]), int(found[3] or here.year)
        clock = _clock(found[4], found[5], found[6])
        try:
            then = here.replace(year, month, day, *clock, second=0, microsecond=0) if clock else None
        except ValueError:
            return 0.0
        if then is not None and then <= here and not found[3]:
            then = then.replace(year=then.year + 1)
        return then.timestamp() if then is not None else 0.0
    if (found := re.search(_TIME, text)) and (found[2] or found[3]) and (clock := _clock(found[1], found[2], found[3])):
        then = here.replace(hour=clock[0], minute=clock[1], second=0, microsecond=0)
        return (then if then > here else then + timedelta(days=1)).timestamp()
    return 0.0


def _clock(hour: str, minute: str | None, half: str | None) -> tuple[int, int] | None:
    hours, minutes = int(hour), int(minute or 0)
    if half:
        if not 1 <= hours <= 12:
            return None
        hours = hours % 12 + (12 if half.lower() == "pm" else 0)
    return (hours, minutes) if hours < 24 and minutes < 60 else None


def _zone(text: str) -> tzinfo | None:
    found = re.search(_ZONE, text)
    if found is None:
        return None
    if found[1] in ("UTC", "GMT"):
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(found[1])
    except (ValueError, OSError, KeyError):
        return None
