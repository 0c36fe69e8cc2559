"""A point in time as text for people: the date and time in UTC, to the second."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(unix_s: float) -> str:
    try:
        return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"second {unix_s:.0f}"  # a date that no calendar here has
