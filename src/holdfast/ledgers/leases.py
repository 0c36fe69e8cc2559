"""The leases of claimed tasks, in memory only: after a restart nobody's heartbeat is known."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.clock import Awake, gap_of
from holdfast.domain.claims import Claim

Clock = Callable[[], float]
# The loop asks for expired leases this often.
LOOK_S = 1.0


class _Lease(msgspec.Struct, frozen=True):
    claim: Claim
    seconds: float
    awake: Awake
    ends: float


class Leases:
    """Leases by task: the holder, and when it ends. Workers are shown `clock`; `steady`, a monotonic one, decides."""

    def __init__(self, clock: Clock, steady: Clock) -> None:
        self._clock = clock
        self._steady = steady
        self._held: dict[str, _Lease] = {}

    def grant(self, claim: Claim, lease_s: float) -> Claim:
        granted = msgspec.structs.replace(claim, until=self._clock() + lease_s)
        awake = Awake(LOOK_S + gap_of(lease_s), self._steady)
        self._held[claim.task] = _Lease(granted, lease_s, awake, awake.now() + lease_s)
        return granted

    def of(self, task: str) -> Claim | None:
        lease = self._held.get(task)
        return lease.claim if lease is not None else None

    def drop(self, task: str) -> None:
        self._held.pop(task, None)

    def expired(self) -> list[Claim]:
        return [lease.claim for lease in list(self._held.values()) if self._is_over(lease)]

    def _is_over(self, lease: _Lease) -> bool:
        """After a gap in which this process did not run, a lease begins anew."""
        now = lease.awake.now()
        if lease.awake.gaps:
            self.grant(lease.claim, lease.seconds)
        return not lease.awake.gaps and lease.ends < now
