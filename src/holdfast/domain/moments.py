"""A point in time as text: for people to the second, in files as ISO 8601; both in UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(unix_s: float) -> str:
    try:
        return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"second {unix_s:.0f}"  # a date that no calendar here has


def iso(unix_s: float) -> str | float:
    """As ISO 8601, to the microsecond. A moment that no calendar here has stays a number."""
    try:
        return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return unix_s
