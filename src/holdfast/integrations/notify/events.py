"""What is worth telling: each kind of event, and how it is found in an entry of the journal. Pure.

Most kinds follow from the entry alone. The others look at the state, which may be some entries further on: they are
named by what they are about (a budget and its day, an outage and its beginning), so that each makes one message
for a rule and an address.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec

from holdfast.config.notify import NotifyKind
from holdfast.config.settings import Config
from holdfast.domain.definition import Definition
from holdfast.domain.effect_entries import CLOSED_BY
from holdfast.domain.entries import STOPPED, EntryLike
from holdfast.domain.outage import Policy, is_open
from holdfast.domain.pull_requests.pull_records import PULL_KEY, PULL_REQUEST
from holdfast.domain.spend import DAY_S, Caps, Spend
from holdfast.domain.state import State
from holdfast.domain.task import TaskState
from holdfast.domain.wording import plural
from holdfast.engine.budget import caps

TEXT_CHARS_MAX = 600
BUDGET_SHARE = 0.8
# Messages of this room: one that is parked must not make another.
OWN_KEYS = "notify:"
_UNITS = {"usd": "dollars", "tokens": "tokens", "turns": "turns", "seconds": "seconds"}
# What services take for an order to ring everybody's phone; the text may be an agent's, or a stranger's.
_MENTION = re.compile(r"(?<=@)(?=everyone\b|here\b|channel\b|all\b)|(?<=<)(?=[!@#])", re.IGNORECASE)


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """`subject` names what it is about: one message for each. `place`: the page's place, behind its address.
    `question`: the id of one that can be answered, and `answers` how."""

    kind: NotifyKind
    subject: str
    title: str
    body: str
    task: str = ""
    place: str = "#/board"
    question: str = ""
    answers: tuple[str, ...] = ()


class EventFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a kind may look at beside the entry. `was_killed`: the run before this entry's has journalled no end."""

    run: str
    state: State
    config: Config
    definition: Callable[[str], Definition | None] = lambda name: None
    is_present: bool = True
    was_killed: bool = False


Found = list[Notification]


def clean(text: object, most: int = TEXT_CHARS_MAX) -> str:
    """Text of anybody's for a message: without control characters and calls to everybody, and not endless."""
    shown = "".join(each for each in str(text) if each.isprintable() or each in "\n\t").strip()
    shown = shown if len(shown) <= most else shown[:most] + "…"
    return _MENTION.sub("\u200b", shown)


def task_place(task: str) -> str:
    return f"#/task/{quote(task, safe='')}"


def _of_task(kind: NotifyKind, entry: EntryLike, facts: EventFacts, title: str, body: str, **more: Any) -> Found:
    task = str(entry.inputs.get("task", ""))
    subject = f"{facts.run}:{entry.seq}"
    place = task_place(task) if task else "#/board"
    told = Notification(
        kind=kind,
        subject=subject,
        title=f"{task} {title}" if task else title,
        body=clean(body),
        task=task,
        place=place,
        **more,
    )
    return [told]


# -- the kinds ---------------------------------------------------------------------------------------------------------


def _needs_you(entry: EntryLike, facts: EventFacts) -> Found:
    kind, inputs = entry.decision_type, entry.inputs
    if kind == "task_flagged" and inputs.get("parked") not in ("", None, STOPPED) and not inputs.get("cause"):
        # One with a cause only repeats a flag that the task has.
        return _of_task("needs_you", entry, facts, "is parked", f"{inputs['parked']}\nType: holdfast show {_t(entry)}")
    if kind == "task_approval_requested" and (inputs.get("outcome") or {}).get("kind") != PULL_REQUEST:
        told = f"Its result waits for your approval.\nType: holdfast review {_t(entry)}"
        return _of_task("needs_you", entry, facts, "waits for you", told)
    if kind == "question_asked":
        return _question(entry, facts)
    if kind == "landing_waits":
        paths = ", ".join(map(str, inputs.get("paths", [])[:10]))
        told = f"Its result changes paths that you have changed in the checkout, and waits for you: {paths}"
        return _of_task("needs_you", entry, facts, "waits to land", told)
    if kind == "message_flagged" and inputs.get("how") == "parked":
        return _parked_message(entry, facts)
    effect, how = CLOSED_BY.get(kind, ("", ""))
    if effect == "publish" and how == "confirmed" and str(inputs.get("key", "")).startswith(PULL_KEY):
        # Only now it has an address.
        number, url = entry.output.get("number", "?"), entry.output.get("url", "")
        told = f"Its result waits for its pull request #{number}: {url}\nType: holdfast pr {_t(entry)}"
        return _of_task("needs_you", entry, facts, "waits for its pull request", told)
    if effect == "publish" and how == "parked":
        return _parked_message(entry, facts)
    if effect not in ("", "publish") and how in ("parked", "abandoned"):
        told = f"{inputs.get('reason') or 'Nobody can know whether it happened.'}\nType: holdfast show {_t(entry)}"
        return _of_task("needs_you", entry, facts, f"is parked: {effect}", told)
    return []


def _question(entry: EntryLike, facts: EventFacts) -> Found:
    inputs = entry.inputs
    words = inputs.get("kind") == "words"
    asked = inputs.get("preview") or inputs.get("argument") or inputs.get("input") or ""
    way = "--say WORDS" if words else "--allow | --always | --deny WHY"
    told = clean(asked) if words else clean(f"May it use {inputs.get('tool', '?')}?\n{asked}")
    told += f"\nType: holdfast answer {inputs.get('id', '')} {way}"
    answers = ("say",) if words else ("allow", "deny")
    found = _of_task("needs_you", entry, facts, "asks you", "", question=str(inputs.get("id", "")), answers=answers)
    return [msgspec.structs.replace(each, body=told) for each in found]


def _parked_message(entry: EntryLike, facts: EventFacts) -> Found:
    key = str(entry.inputs.get("key", ""))
    if key.startswith(OWN_KEYS):
        return []
    told = f"{entry.inputs.get('reason') or 'Nobody can know whether it left.'}\nType: holdfast outbox"
    return _of_task("needs_you", entry, facts, f"message {clean(key, 100)} needs you", told)


def _failed(entry: EntryLike, facts: EventFacts) -> Found:
    if entry.decision_type != "task_failed" or entry.inputs.get("again"):
        return []
    outcome = entry.inputs.get("outcome") or {}
    told = f"{outcome.get('detail') or entry.inputs.get('reason')}\nType: holdfast show {_t(entry)}"
    return _of_task("failed", entry, facts, "has failed", told)


def _landed(entry: EntryLike, facts: EventFacts) -> Found:
    if entry.decision_type != "task_land_confirmed":
        return []
    branch = str(entry.output.get("branch", "")).removeprefix("refs/heads/")
    commit = str(entry.output.get("new", ""))[:12]
    return _of_task("landed", entry, facts, "has landed", f"On {branch} as {commit}." if commit else "It has landed.")


def _run_over(entry: EntryLike, facts: EventFacts) -> Found:
    """Not from an entry: the loop tells of its end before it is there (`run_over`), or nobody could send it."""
    return []


def _budget(entry: EntryLike, facts: EventFacts) -> Found:
    inputs = entry.inputs
    if entry.decision_type != "turn_completed" and not inputs.get("rest"):
        return []
    state, task = facts.state, facts.state.tasks.get(str(inputs.get("task", "")))
    day = int(entry.timestamp // DAY_S)
    found = _near(caps(facts.config, "day"), state.days.get(day, Spend()), f"day:{day}", "of the day")
    if facts.is_present:
        # What an earlier run has spent is not in the state any more, and that run spends nothing more.
        found += _near(caps(facts.config, "run"), state.run, f"run:{facts.run}", "of the run")
    if task is not None:
        of_task = caps(facts.config, "task", facts.definition(task.id))
        found += _near(of_task, task.spent, f"task:{task.id}", f"of {task.id}", task.id)
    return found


def _near(most: Caps, spent: Spend, subject: str, whose: str, task: str = "") -> Found:
    found = []
    for name, unit in _UNITS.items():
        cap, used = getattr(most, name), getattr(spent, name)
        if cap is not None and used >= cap * BUDGET_SHARE:
            found.append(
                Notification(
                    kind="budget",
                    subject=f"budget:{subject}:{name}",
                    title=f"the budget {whose} is at {used / cap:.0%}",
                    body=f"{used:,.6g} of {cap:,.6g} {unit} are spent.",
                    task=task,
                    place=task_place(task) if task else "#/costs",
                )
            )
    return found


def _agent_unreachable(entry: EntryLike, facts: EventFacts) -> Found:
    if not entry.inputs.get("until") or entry.decision_type != "task_opened":
        return []
    config = facts.config
    policy = Policy(config.outage_after, config.outage_pause_s, config.outage_pause_max_s)
    return [
        Notification(
            kind="agent_unreachable",
            subject=f"outage:{each.agent}:{each.endpoint}:{each.since:.3f}",
            title=f"{each.name} {each.what}",
            body=clean(
                f"{each.detail}\n{plural(each.in_a_row, 'start')} in a row; its tasks wait, and are tried again."
            ),
            place="#/agents",
        )
        for each in facts.state.outages.copy().values()
        if is_open(each, policy)
    ]


def _recovered(entry: EntryLike, facts: EventFacts) -> Found:
    if entry.decision_type != "wal_replay_completed":
        return []
    counts = {name: count for name, count in entry.inputs.items() if isinstance(count, int) and count}
    if not counts and not facts.was_killed:
        return []
    told = ", ".join(f"{count} {name}" for name, count in counts.items()) or "nothing was open"
    body = f"The run before this one was cut off. What it had begun is settled: {told}.\nType: holdfast check"
    return [
        Notification(
            kind="recovered",
            subject=f"{facts.run}:{entry.seq}",
            title="recovered after a crash",
            body=body,
            place="#/journal",
        )
    ]


# Every kind, as the settings name it.
KINDS: dict[NotifyKind, Callable[[EntryLike, EventFacts], Found]] = {
    "needs_you": _needs_you,
    "failed": _failed,
    "landed": _landed,
    "run_over": _run_over,
    "budget": _budget,
    "agent_unreachable": _agent_unreachable,
    "recovered": _recovered,
}


def found_in(entry: EntryLike, facts: EventFacts, kinds: tuple[NotifyKind, ...]) -> Found:
    """What an entry has to tell, of these kinds."""
    return [each for kind in kinds for each in KINDS[kind](entry, facts)]


def run_over(run: str, state: State) -> Notification:
    """The end of a run, from the state that it leaves."""
    states = [task.state for task in state.tasks.values()]
    waiting = sum(bool(task.parked) or task.state is TaskState.PENDING_APPROVAL for task in state.tasks.values())
    counts = {
        "closed": states.count(TaskState.CLOSED),
        "failed": states.count(TaskState.FAILED),
        "open": states.count(TaskState.OPEN),
        "asking": len(state.asking),
        "waiting for you": waiting,
    }
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "there is no task"
    return Notification(
        kind="run_over", subject=f"run_over:{run}", title="the run is over", body=f"Tasks: {told}.\nType: holdfast list"
    )


def _t(entry: EntryLike) -> str:
    return str(entry.inputs.get("task", ""))
