"""Follows the journal for each rule, and queues what the rule wants.

Each rule has a cursor of its own, which begins at the journal's end: what happened before a rule was there is not told.
An entry may be handled again after a crash; its messages have their keys, and are queued once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.config.notify import NotifyRule
from holdfast.config.settings import Config
from holdfast.engine.context import RunContext
from holdfast.integrations.notify.apprise_publisher import notification_publishers
from holdfast.integrations.notify.digests import DigestPublisher
from holdfast.integrations.notify.events import EventFacts, Found, Notification, found_in, run_over
from holdfast.integrations.notify.rules import DIGEST, messages, wants
from holdfast.integrations.outbox.sender import queue_messages
from holdfast.layout import Layout
from holdfast.observers.journal_follower import JournalFollower
from holdfast.ports import Ledger, Publisher
from holdfast.storage.files import disk
from holdfast.storage.journal.entry import Entry

FAMILY = "notify"
ACTOR = "notify"


class RuleFollower:
    """What becomes of each entry, for one rule."""

    def __init__(self, rule: NotifyRule, context: RunContext) -> None:
        self.rule, self._context = rule, context
        # Of the run whose entries are being handled: whether it has journalled its end, and the one before it had.
        self._has_ended, self._was_killed = False, False

    def handle(self, run: str, entry: Entry) -> None:
        if entry.decision_type == "run_started":
            # A follower ends before its run does: the first entry that it sees in the next one is that end.
            self._was_killed, self._has_ended = not self._has_ended, False
        elif entry.decision_type == "run_ended":
            self._has_ended = True
        self.tell(found_in(entry, self._facts(run), self.rule.on))

    def tell(self, found: Found) -> list[str]:
        context, now = self._context, self._context.clock()
        wanted = [each for each in found if wants(self.rule, each, context.board.definition(each.task))]
        made = [message for each in wanted for message in messages(self.rule, each, context.repo.name, now)]
        return queue_messages(context.ledger, made, actor=ACTOR) if made else []

    def _facts(self, run: str) -> EventFacts:
        context = self._context
        return EventFacts(
            run=run,
            state=context.ledger.state,
            config=context.config,
            definition=context.board.definition,
            is_present=run == context.ledger.run,
            was_killed=self._was_killed,
        )


def publishers_of(
    repo: Path, layout: Layout, config: Config, ledger: Ledger, clock: Callable[[], float]
) -> dict[str, Publisher]:
    """The publishers of notifications, by channel. Also of a short run, which settles what a crash cut off."""
    made = notification_publishers(repo, layout, config.page_url)
    return {**made, DIGEST: DigestPublisher(ledger, clock, repo.name)}


def add_rules(context: RunContext) -> None:
    """Has a run tell people what its rules want."""
    rules = context.config.notify
    forget_rules(context.layout, rules)
    followed = [RuleFollower(rule, context) for rule in rules]
    say: Callable[[str], None] = lambda line: context.note("", line)  # noqa: E731
    context.followers += [
        JournalFollower.on_file(
            f"{FAMILY}:{each.rule.name}", each.handle, layout=context.layout, ledger=context.ledger, say=say
        )
        for each in followed
    ]
    if rules:
        context.before_end.append(lambda: _tell_end(context, followed))


def forget_rules(layout: Layout, rules: Sequence[NotifyRule]) -> None:
    """Takes away the cursors of rules that are gone: one that comes back begins anew."""
    kept = {f"{FAMILY}:{rule.name}.json" for rule in rules}
    with contextlib.suppress(FileNotFoundError):
        for path in sorted(layout.cursors.glob(f"{FAMILY}:*.json")):
            if path.name not in kept:
                disk.unlink(path)


def _tell_end(context: RunContext, followed: Sequence[RuleFollower]) -> bool:
    """Queues, once in a run, that it is over; whether anything was queued."""
    over: Notification = run_over(context.ledger.run, context.ledger.state)
    queued = [key for each in followed for key in each.tell([over])]
    return bool(queued)
