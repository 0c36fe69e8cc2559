"""Has a durable write go before everything else on the cores, where this process may.

A process that wakes up behind its sync waits until the one that runs has used up its slice: 3 ms and more, many times
what the sync takes. Niceness counts only inside one session (Linux gives each a share of its own), and the weight of a
control group decides how much it gets, not how soon. The lowest real-time priority decides how soon. It is held for one
write and its sync, by the thread that makes them, and no child inherits it; so an idle machine does not notice, and a
busy one loses some 0.1 ms for each entry.

Root may do this, and a user whose RLIMIT_RTPRIO is at least 1.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

# A thread with this flag hands its priority on to nobody. Once set, only root can take it off again.
_FLAG = os.SCHED_RESET_ON_FORK
_FIRST, _USUAL = os.sched_param(1), os.sched_param(0)


class _Permission:
    """Whether this process may; asked once, with the first write."""

    is_refused = False


@contextlib.contextmanager
def urgent() -> Iterator[None]:
    """The work inside goes first, if that is allowed; it is done in any case."""
    is_raised = _raise()
    try:
        yield
    finally:
        if is_raised:
            os.sched_setscheduler(0, os.SCHED_OTHER | _FLAG, _USUAL)


def _raise() -> bool:
    if _Permission.is_refused:
        return False
    try:
        # A user who chose another policy for the whole run has it.
        if os.sched_getscheduler(0) & ~_FLAG != os.SCHED_OTHER:
            return False
        os.sched_setscheduler(0, os.SCHED_RR | _FLAG, _FIRST)
    except OSError:
        _Permission.is_refused = True
        return False
    return True


def in_words() -> str:
    """Says for `doctor` whether the journal's writes go first here. Tries it."""
    with urgent():
        is_first = os.sched_getscheduler(0) & ~_FLAG == os.SCHED_RR
    if is_first:
        return "each entry is written and synced at real-time priority 1, before agents and other programs"
    return (
        "each entry waits for its turn on the cores, which takes longer while others keep them busy; "
        "a user may do without that where RLIMIT_RTPRIO is 1 (`LimitRTPRIO=1` of systemd, or limits.conf)"
    )
