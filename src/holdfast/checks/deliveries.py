"""Compares deliveries with what followed: each is received once and judged, and each key of a rule has one task."""

from __future__ import annotations

from collections import Counter

from holdfast.checks.report import RESTORE, RUN, Draft
from holdfast.domain.entries import EntryLike
from holdfast.domain.state import State
from holdfast.storage.records.blobs import Blobs

# So long the body of a delivery is kept: it can be judged again. `gc` removes older ones.
BODY_S_KEPT = 30 * 86_400.0


class RecordedDeliveries:
    """Collects the entries about deliveries, in order."""

    def __init__(self) -> None:
        self.received: Counter[str] = Counter()
        self.judged: Counter[str] = Counter()
        # The body of each, and when it came.
        self.bodies: dict[str, tuple[str, float]] = {}
        # Tasks that rules have made, by key, and the delivery of each.
        self.made: Counter[str] = Counter()
        self.makers: dict[str, str] = {}

    def add(self, entry: EntryLike) -> None:
        inputs = entry.inputs
        match entry.decision_type:
            case "delivery_received":
                key = str(inputs.get("idempotency_key"))
                self.received[key] += 1
                self.bodies[key] = (str(inputs.get("body")), entry.timestamp)
            case "delivery_judged":
                self.judged[str(inputs.get("delivery"))] += 1
            case "task_added" if inputs.get("rule"):
                self.made[str(inputs.get("idempotency_key"))] += 1
                self.makers[str(inputs["task"])] = str(inputs.get("delivery"))


def deliveries(state: State, recorded: RecordedDeliveries, blobs: Blobs, now: float) -> Draft:
    left = state.connections.triggers.unjudged
    draft = Draft("deliveries", received=recorded.received.total(), tasks=recorded.made.total(), unjudged=len(left))
    for key, count in recorded.received.items():
        if count > 1:
            draft.findings.append(f"the delivery {key} was received {count} times; {RESTORE}")
        if not recorded.judged[key] and key not in left:
            draft.findings.append(f"the delivery {key} was never judged, and nobody will; {RESTORE}")
        body, moment = recorded.bodies[key]
        if now - moment < BODY_S_KEPT and not blobs.has(body):
            draft.findings.append(f"the body of the delivery {key}, blob {body}, is missing; {RESTORE}")
    for key in recorded.judged:
        if key not in recorded.received:
            draft.findings.append(f"the delivery {key} was judged, and never received; {RESTORE}")
    for key, count in recorded.made.items():
        if count > 1:
            draft.findings.append(f"the key {key} has {count} tasks, and may have one; {RESTORE}")
    for task, delivery in recorded.makers.items():
        if delivery not in recorded.received:
            draft.findings.append(f"the task {task} names the delivery {delivery}, which was never received; {RESTORE}")
    if left:
        draft.pending.append(f"{len(left)} of them are not judged yet; {RUN}")
    return draft
