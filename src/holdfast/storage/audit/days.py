"""The days of the audit log: each has a file, named by its date in UTC."""

from __future__ import annotations

import datetime
import os
import re
from pathlib import Path

from holdfast.errors import InputError, InvalidName
from holdfast.storage.files import disk

_YEAR_10000_S = 253_402_300_800
_DAY_FILE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\.jsonl")


def moment(now: float) -> datetime.datetime:
    """The clock's reading as a UTC time."""
    if not 0 <= now < _YEAR_10000_S:
        raise InputError(detail=f"the clock says {now} seconds since 1970, which is no moment from 1970 to 9999")
    return datetime.datetime.fromtimestamp(now, datetime.UTC)


def name_of(day: datetime.date) -> str:
    return f"{day.isoformat()}.jsonl"


def date_of(name: str) -> datetime.date:
    return datetime.date.fromisoformat(name.removesuffix(".jsonl"))


def day_files(folder: Path) -> list[str]:
    """The names of the days, by date, without names that look like a date but are none: see `misnamed_files`."""
    return [name for name in _dated_files(folder) if _is_day(name)]


def misnamed_files(folder: Path) -> list[str]:
    """Names such as 9999-99-99.jsonl, under which nothing is ever written."""
    return [name for name in _dated_files(folder) if not _is_day(name)]


def _dated_files(folder: Path) -> list[str]:
    with disk.reading(folder):
        try:
            entries = list(os.scandir(folder))
        except FileNotFoundError:
            return []
        return sorted(entry.name for entry in entries if _DAY_FILE.fullmatch(entry.name) and entry.is_file())


def _is_day(name: str) -> bool:
    try:
        date_of(name)
    except ValueError:
        return False
    return _DAY_FILE.fullmatch(name) is not None


def day_file(day: str) -> str:
    """The name of a day's file, given as a date or as the name itself."""
    name = day.removesuffix(".jsonl") + ".jsonl"
    if not _is_day(name):
        raise InvalidName(what="The day", name=day, rule="a date such as 2026-11-15 is needed")
    return name
