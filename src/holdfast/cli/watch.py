"""`watch`: a run as it goes, from any terminal, also one in the background. It reads files, and needs no server.

On a terminal it is a full screen with keys (screen/watch_screen.py). Elsewhere it prints a line for each change, and
ends when nobody runs and no agent is at work.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import click
import msgspec

from holdfast.cli.options import find_app, prints_json
from holdfast.cli.screen.picture import SETTLED, Looking, Picture
from holdfast.cli.screen.terminal import clock_now, printing, wait_for_reader
from holdfast.clock import wall
from holdfast.domain.wording import money


@click.command(epilog="Examples:  holdfast watch  ·  holdfast watch --plain  ·  holdfast watch --json | jq -c .")
@click.option("--plain", "is_plain", is_flag=True, help="A line for each change, also on a terminal.")
@prints_json
def watch(ctx: click.Context, is_plain: bool, as_json: bool) -> None:
    """Watch a run as it goes, from any terminal, also one in the background.

    On a terminal: a full screen. The arrow keys select a task; a follows its agent, d shows what its attempt has
    changed, t tells it something, r answers what it asks, y approves a result that waits for you, s stops its agent,
    q leaves. Leaving stops nothing.

    Elsewhere, and with --plain: a line for each change, until no run is alive and no agent works.
    """
    app = find_app(ctx)
    looking = Looking(app)
    is_screen = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if as_json or is_plain or not is_screen:
        with contextlib.suppress(KeyboardInterrupt):
            _follow(looking, as_json)
        return
    from holdfast.cli.screen.watch_screen import Watcher

    Watcher(app, looking).run()


# -- lines ------------------------------------------------------------------------------------------------------------


def _follow(looking: Looking, as_json: bool) -> None:
    before: dict[str, dict[str, Any]] = {}
    with printing() as printer:
        while True:
            picture = looking.now()
            new = _facts(picture)
            for change in _changes(before, new):
                if as_json:
                    printer.line(msgspec.json.encode({"ts": wall(), **change}))
                else:
                    printer.text(f"{clock_now()}  {_sentence(change)}", "")
            before = new
            printer.flush()
            if picture.is_over:
                if as_json:
                    counts = Counter(str(row.state) for row in picture.rows.values())
                    printer.line(msgspec.json.encode({"ts": wall(), "kind": "ended", "counts": dict(counts)}))
                else:
                    printer.text(f"{clock_now()}  nobody runs: {picture.counts}", "")
                return
            if not wait_for_reader(looking.wait_s):
                return


def _facts(picture: Picture) -> dict[str, dict[str, Any]]:
    """The facts whose changes are printed: the run, each task's state, and what its agent does."""
    runs = picture.runs
    found: dict[str, dict[str, Any]] = {
        "run": {"kind": "run", "pid": runs.pid if runs else None, "run": runs.run if runs else ""},
        "host": {"kind": "host", "held": bool(picture.held)},
    }
    for row in picture.rows.values():
        why = row.reason or row.parked or row.lost or "; ".join(row.waits)
        state = {"task": row.id, "state": row.state, "how": picture.words[row.id], "why": why, "next": row.next_step}
        found[f"task {row.id}"] = {"kind": "state", **state}
        if (hook := picture.hooks.get(row.id)) is not None:
            found[f"hook {row.id}"] = {
                "kind": "hook", "task": row.id, "hook": hook.hook, "command": hook.command, "since": hook.at,
                "what": hook.words,
            }  # fmt: skip
        if (agent := picture.agents.get(row.id)) is not None:
            does = {"turn": agent.turn, "tool": agent.tool, "usd": agent.usd, "retrying": agent.retrying}
            found[f"agent {row.id}"] = {
                "kind": "agent", "task": row.id, "attempt": agent.attempt, "agent": agent.agent, **does
            }  # fmt: skip
    return found


def _changes(before: Mapping[str, dict[str, Any]], now: Mapping[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The facts that are new. The first time without tasks that have ended, and without a run that is not there."""
    for name, facts in now.items():
        is_dull = facts.get("how") in SETTLED or not (facts.get("run", True) and facts.get("held", True))
        if before.get(name) == facts or (not before and is_dull):
            continue
        yield facts


def _sentence(facts: Mapping[str, Any]) -> str:
    match facts["kind"]:
        case "run":
            return f"run {facts['run']} is alive, pid {facts['pid']}" if facts["run"] else "nobody runs"
        case "host":
            return "no more agents are started: memory is short" if facts["held"] else "there is room for agents"
        case "state":
            return f"{facts['task']}: {facts['how']}" + (f": {facts['why']}" if facts["why"] else "")
        case "hook":
            return f"{facts['task']}: {facts['what']}"
    doing = f"does not reach its model, and tries again: {facts['retrying']}" if facts["retrying"] else facts["tool"]
    return f"{facts['task']}: {facts['agent']}, turn {facts['turn']}, {money(facts['usd'])}  {doing}".rstrip()
