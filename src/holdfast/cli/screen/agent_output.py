"""An agent at work as a row of a table, and an attempt's events and turns as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdfast.domain.wording import given_words, money, plain, plural
from holdfast.storage.records import transcript
from holdfast.storage.records.at_work import AtWork, clock

if TYPE_CHECKING:
    from holdfast.layout import Attempt

INPUT_CHARS_MAX = 300
OUTPUT_LINES_MAX = 8


# A table of agents at work has these columns.
AGENT_COLUMNS = ("ATTEMPT", "AGENT", "TURN", "SPENT", "TIME", "LAST TOOL")


def agent_cells(agent: AtWork, now: float) -> tuple[str, ...]:
    """The cells of an agent under AGENT_COLUMNS, printable."""
    spent, lasted = money(agent.usd), clock(now - agent.since)
    return plain(agent.attempt), plain(agent.agent), str(agent.turn), spent, lasted, plain(doing(agent))


def doing(agent: AtWork) -> str:
    """What the agent does, as it says it: escape it before a terminal sees it."""
    if agent.asks:
        return f"waits for your answer: holdfast questions, then holdfast answer {agent.asks}"
    return f"tries to reach its model again: {agent.retrying}" if agent.retrying else agent.tool


class Records:
    """The events and turns of an attempt."""

    def __init__(self, files: Attempt) -> None:
        self._files, self._place = files, transcript.TranscriptPlace()

    def new(self) -> Iterator[dict[str, Any]]:
        while True:
            found, self._place = transcript.after(self._files, self._place)
            if not found:
                return
            yield from found


def lines(each: dict[str, Any]) -> Iterator[str]:
    """The text is as the agent wrote it, and one may have several lines: escape it before a terminal sees it."""
    match each["type"]:
        case "said":
            yield str(each.get("text", ""))
        case "told":
            yield f"» {each.get('by') or 'a person'}: {each.get('text', '')}"
        case "tool_started":
            yield f"→ {each.get('name', '')} {given_words(str(each.get('input', '')))}"[:INPUT_CHARS_MAX].rstrip()
        case "tool_ended":
            yield from _output(each)
        case "turn":
            files = each.get("files", [])
            told = f"{plural(len(files), 'file')} changed, {money(each.get('usd', 0.0))}"
            yield f"── turn {each.get('turn')}: {told}, {each.get('seconds', 0.0):.1f} s"
        case "retrying":
            wait_s = each.get("wait_s", 0.0)
            told = f", in {wait_s:.0f} s" if wait_s else ""
            yield f"does not reach its model, and tries again{told}: {each.get('detail', '')}"
        case "rate_limited":
            yield f"rate limited: {each.get('detail', '')}"
        case "finished":
            how, detail = "finished" if each.get("ok") else "says that it has failed", each.get("detail")
            yield f"{how}: {detail}" if detail else how


def _output(each: dict[str, Any]) -> Iterator[str]:
    if not each.get("ok", True):
        yield "  it failed"
    found = str(each.get("output", "")).rstrip().split("\n")
    if found == [""]:
        return
    yield from (f"  {line[:INPUT_CHARS_MAX]}" for line in found[:OUTPUT_LINES_MAX])
    if len(found) > OUTPUT_LINES_MAX:
        yield f"  … {plural(len(found) - OUTPUT_LINES_MAX, 'more line')}"
