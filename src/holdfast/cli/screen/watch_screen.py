"""The full screen of `watch`: a list of tasks with keys, and below it the selected task; or one text to page through.

What others wrote (titles, output, file names) is made printable before it is measured, cut and painted. A decision
runs in a thread of its own, by the same function as the command of that name, so that the screen goes on meanwhile.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.screen import agent_output
from holdfast.cli.screen.fullscreen import FullScreen, Line
from holdfast.cli.screen.input_line import INPUT_KEYS, InputLine, question_head, reply
from holdfast.cli.screen.picture import SETTLED, Looking, Picture, heading
from holdfast.cli.screen.table import aligned, cell_width, column_widths, cut, pad, wrapped
from holdfast.clock import wall
from holdfast.domain.task_record import Task, open_questions
from holdfast.domain.wording import money, plain
from holdfast.errors import HoldfastError
from holdfast.storage.records.at_work import clock, tail

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.layout import Attempt

DIFF_BYTES_MAX = 4 << 20
LINES_MAX = 20_000
MESSAGE_LINES_MAX = 3
# Of the screen's height, the part for the selected task.
DETAIL_SHARE = 3
KEYS = "↑↓ select   a attach   d diff   t tell   r answer   y approve   s stop   q leave"
PAGER_KEYS = "↑↓ scroll   space page   G end   q back"
_COLOUR = {
    "at work": "green", "to approve": "yellow", "asks": "yellow", "failed": "red", "to decide": "yellow",
    "stopped": "yellow", "landing waits": "yellow", "landing lost": "red", "agent lost": "red", "closed": "dim",
    "cancelled": "dim",
}  # fmt: skip
_DIFF = (("+++", "bold"), ("---", "bold"), ("+", "green"), ("-", "red"), ("@@", "cyan"), ("diff ", "bold"))


class Watcher:
    """Paints, waits for a key or the next look, and carries out what was typed."""

    def __init__(self, app: App, looking: Looking) -> None:
        self._app, self._looking = app, looking
        # The first look may raise: nothing is on the screen yet.
        self._picture = looking.now()
        self._selected = next(iter(self._picture.rows), "")
        self._top = 0
        self._pager: Pager | None = None
        self._question: tuple[str, Callable[[], None]] | None = None
        self._input: tuple[str, InputLine] | None = None
        # What was typed and has not been sent, by what it was for.
        self._unsent: dict[str, str] = {}
        self._message = ""
        self._decision: threading.Thread | None = None

    def run(self) -> None:
        code = 0
        with FullScreen() as screen:
            try:
                while self._step(screen):
                    pass
            except (KeyboardInterrupt, EOFError):
                pass
            except OSError:
                # The terminal is gone.
                code = 1
        if self._decision is not None and self._decision.is_alive():
            click.echo(f"{self._message} Ctrl-C leaves it.", err=True)
            self._decision.join()
            click.echo(self._message, err=True)
        for name, text in self._unsent.items() if not code else ():
            if text.strip():
                click.echo(f"Not sent, {plain(name)}: {plain(text)}", err=True)
        if code:
            sys.exit(code)

    def _step(self, screen: FullScreen) -> bool:
        if not self._looking.wait_s:
            try:
                self._picture = self._looking.now()
            except HoldfastError as error:
                self._message = plain(str(error))
        columns, rows = screen.size
        screen.paint(self._lines(columns, rows))
        keys = screen.keys(self._looking.wait_s, is_text=self._input is not None)
        if self._input is not None:
            self._write(*self._input, keys)
            return True
        for key in keys:
            was_asked = self._question is not None
            if not self._typed(key, rows):
                return False
            if self._input is not None or (self._question is not None and not was_asked):
                # The rest was typed, or pasted, before the question could be read.
                break
        return True

    # -- keys ---------------------------------------------------------------------------------------------------------

    def _typed(self, key: str, rows: int) -> bool:
        """Carries out a key; False: leave."""
        if self._question is not None:
            (_, act), self._question = self._question, None
            if key == "y":
                act()
            else:
                self._message = "Nothing was done."
            return True
        self._message = "" if self._decision is None else self._message
        if self._pager is not None:
            if key in ("q", "escape"):
                self._pager = None
            else:
                self._pager.move(key, rows - 2)
            return True
        if key == "q":
            return False
        ids = list(self._picture.rows)
        steps = {"up": -1, "down": 1, "page up": -10, "page down": 10, "home": -len(ids), "end": len(ids)}
        if key in steps and ids:
            at = ids.index(self._selected) if self._selected in ids else 0
            self._selected = ids[min(max(at + steps[key], 0), len(ids) - 1)]
        elif self._selected and key in _ACTIONS:
            try:
                _ACTIONS[key](self)
            except (HoldfastError, OSError) as error:
                self._message = plain(str(error))
        return True

    def _attempted(self) -> Task | None:
        """The selected task, if an agent has worked on it; else says so."""
        task = self._picture.tasks.get(self._selected)
        if task is None or not task.attempt.id:
            self._message = f"No agent has worked on {plain(self._selected)} yet."
            return None
        return task

    def _attach(self) -> None:
        if (task := self._attempted()) is None:
            return
        records = agent_output.Records(self._app.layout.attempt_files(task.attempt.id))

        def more() -> list[str]:
            new = (text for record in records.new() for text in agent_output.lines(record))
            return [line for text in new for line in _printable(text)]

        self._pager = Pager(f"{task.attempt.id}, {task.claim.agent or 'its agent'}", more=more)

    def _diff(self) -> None:
        from holdfast.views.diffs import Diffs

        if (task := self._attempted()) is None:
            return
        diffs = Diffs(self._app.repo, self._app.layout, task, task.attempt.id, self._app.reader())
        old, new = diffs.whole()
        text = diffs.beginning(old, new, DIFF_BYTES_MAX, "-p", "--stat").decode(errors="backslashreplace")
        self._pager = Pager(
            f"what {task.attempt.id} has changed", _printable(text or "It has changed nothing."), _diff_style
        )

    def _approve(self) -> None:
        name = self._selected
        if (word := self._picture.words[name]) != "to approve":
            self._message = f"{plain(name)} does not wait for an approval: it is {word}."
            return
        self._ask(f"Approve {plain(name)}, so that it lands?", "approve", {"task": name})

    def _stop(self) -> None:
        name = self._selected
        if name not in self._picture.agents:
            self._message = f"No agent is at work on {plain(name)}: it is {self._picture.words[name]}."
            return
        self._ask(f"Stop the agent of {plain(name)}? It waits then for `holdfast resume`.", "stop", {"tasks": [name]})

    def _tell(self) -> None:
        name = self._selected
        head = f"Tell the agent of {name}:"
        self._read_line(f"tell {name}", head, lambda words: ("tell", {"task": name, "message": words}))

    def _answer(self) -> None:
        task = self._picture.tasks.get(self._selected)
        asked = open_questions(task) if task is not None else []
        if not asked:
            self._message = f"The agent of {plain(self._selected)} asks nothing."
            return
        first = asked[0]
        self._read_line(f"answer {first.id}", question_head(first), lambda words: ("answer", reply(first, words)))

    def _read_line(self, name: str, head: str, decision: Callable[[str], tuple[str, dict[str, Any]]]) -> None:
        """Opens the line at the bottom, with what was typed there before and not sent."""
        if not self._is_deciding():
            self._input = (name, InputLine(head, decision, self._unsent.get(name, "")))

    def _write(self, name: str, line: InputLine, keys: Sequence[str]) -> None:
        line.typed(keys)
        # Kept until it was taken: what is refused can be sent again.
        self._unsent[name] = line.text
        if line.is_left:
            self._input = None
        if line.is_sent:
            self._decide(*line.decision(line.text.strip()), lambda: self._unsent.pop(name))

    def _is_deciding(self) -> bool:
        if self._decision is None or not self._decision.is_alive():
            return False
        self._message = "One thing at a time: the last one is still being done."
        return True

    def _ask(self, question: str, kind: str, params: dict[str, Any]) -> None:
        if self._is_deciding():
            return
        self._question = (f"{question}  y: yes, any other key: no", lambda: self._decide(kind, params))

    def _decide(self, kind: str, params: dict[str, Any], taken: Callable[[], object] = lambda: None) -> None:
        self._message = "It is being done …"

        def carry_out() -> None:
            from holdfast.short_runs import decide

            said: list[str] = []
            try:
                answer = decide(self._app, kind, params, said.append)
                taken()
                said += [f"{each.id}: {each.note or each.state}" for each in answer.tasks]
            except (HoldfastError, OSError) as error:
                said = [str(error)]
            self._message, self._decision = plain("; ".join(said)), None

        self._decision = threading.Thread(target=carry_out, name=f"watch-{kind}", daemon=True)
        self._decision.start()

    # -- painting -----------------------------------------------------------------------------------------------------

    def _lines(self, columns: int, rows: int) -> list[Line]:
        style = "bold yellow" if self._question else "bold"
        words = wrapped(self._question[0] if self._question else self._message, columns, MESSAGE_LINES_MAX)
        told = self._input[1].lines(columns) if self._input else [(line, style) for line in words]
        room = rows - 1 - len(told)
        body = self._pager.lines(columns, room) if self._pager is not None else self._list(columns, room)
        keys = PAGER_KEYS if self._pager is not None else INPUT_KEYS if self._input is not None else KEYS
        body += [("", "")] * (room - len(body))
        return [*body, *told, (cut(keys, columns), "dim")]

    def _list(self, columns: int, rows: int) -> list[Line]:
        picture = self._picture
        if self._selected not in picture.rows:
            self._selected = next(iter(picture.rows), "")
        who, *below = heading(picture, wall())
        head = f"holdfast watch  {plain(self._app.repo.name)}"
        lines = [(pad(cut(f"{head}  {plain(who)}", columns), columns), "bold")]
        lines += [(cut(line, columns), "") for line in below]
        if not picture.rows:
            return [*lines, ("", ""), (cut('There are no tasks yet; `holdfast add "…"` makes one.', columns), "")]
        detail_rows = max(5, rows // DETAIL_SHARE)
        room = max(1, rows - len(lines) - 2 - detail_rows)
        ids = list(picture.rows)
        at = ids.index(self._selected)
        self._top = min(max(self._top, at - room + 1), at, max(0, len(ids) - room))
        shown = ids[self._top : self._top + room]
        widths = column_widths([_HEAD, *(_cells(picture, name) for name in ids)])
        if columns < _WIDE_COLUMNS:
            widths = [0 if name in _WIDE else width for name, width in zip(_HEAD, widths, strict=True)]
        lines.append((cut("  " + aligned(_HEAD, widths), columns), "bold"))
        for name in shown:
            style = _COLOUR.get(picture.words[name], "")
            mark, style = ("> ", f"reverse {style}".replace(" dim", "")) if name == self._selected else ("  ", style)
            line = cut(mark + aligned(_cells(picture, name), widths), columns)
            lines.append((pad(line, columns), style))
        lines += [("", "")] * (room - len(shown))
        more = f" {len(ids) - len(shown)} more " if len(shown) < len(ids) else ""
        lines.append((("─" * max(0, columns - len(more)) + more), "dim"))
        return [*lines, *self._details(columns, detail_rows)]

    def _details(self, columns: int, rows: int) -> list[Line]:
        """The selected task: what it is, why it stands so, what to type, and the end of its agent's output."""
        row, task = self._picture.rows[self._selected], self._picture.tasks.get(self._selected)
        lines: list[Line] = [(cut(plain(f"{row.id}: {row.title}"), columns), "bold")]
        judged = f"judged as {row.judging}" if row.judging else ""
        why = row.reason or row.parked or row.lost or "; ".join(row.waits) or judged
        lines += [(line, "") for line in wrapped(plain(why), columns, 2) if line]
        if row.next_step and self._picture.words[row.id] not in SETTLED:
            lines += [(line, "cyan") for line in wrapped(plain(f"next: {row.next_step}"), columns, 2)]
        left = rows - len(lines)
        if task is not None and task.attempt.id and left > 0:
            text = _tail(self._app.layout.attempt_files(task.attempt.id), left)
            lines += [(cut(f"  {line}", columns), "dim") for line in text]
        return lines[:rows]


_ACTIONS: dict[str, Callable[[Watcher], None]] = {
    "a": Watcher._attach, "enter": Watcher._attach, "d": Watcher._diff, "y": Watcher._approve, "s": Watcher._stop,
    "t": Watcher._tell, "r": Watcher._answer,
}  # fmt: skip


# -- the table --------------------------------------------------------------------------------------------------------

_HEAD = ("STATE", "TASK", "AGENT", "TURN", "SPENT", "TIME", "DOES")
# What a narrow screen does without.
_WIDE = {"AGENT", "SPENT"}
_WIDE_COLUMNS = 100


def _cells(picture: Picture, name: str) -> tuple[str, ...]:
    row, agent, task = picture.rows[name], picture.agents.get(name), picture.tasks.get(name)
    turn, spent, time, does = "", money(task.spent.usd) if task is not None and task.spent.usd else "", "", row.title
    if picture.words[name] == "asks":
        does = row.waits[0]
    if agent is not None:
        turn, spent, time = str(agent.turn), money(agent.usd), clock(wall() - agent.since)
        does = agent_output.doing(agent) or row.title
    if (hook := picture.hooks.get(name)) is not None:
        time, does = clock(wall() - hook.at), hook.words
    return tuple(plain(each) for each in (picture.words[name], name, row.agent, turn, spent, time, does))


def _tail(files: Attempt, most: int) -> list[str]:
    """The last lines of an attempt's output."""
    records = [*tail(files.events), *({**turn, "type": "turn"} for turn in tail(files.turns))]
    found: deque[str] = deque(maxlen=most)
    for record in sorted(records, key=lambda record: record.get("ts", 0.0)):
        for text in agent_output.lines(record) if "type" in record else ():
            found.extend(_printable(text))
    return list(found)


def _printable(text: str) -> list[str]:
    return [plain(line.expandtabs(4)) for line in text.rstrip("\n").split("\n")]


def _diff_style(line: str) -> str:
    return next((style for begin, style in _DIFF if line.startswith(begin)), "")


# -- one text ---------------------------------------------------------------------------------------------------------


class Pager:
    """A text to scroll through. While its end is shown, what `more` brings is followed."""

    def __init__(
        self,
        title: str,
        lines: Sequence[str] = (),
        style: Callable[[str], str] = lambda line: "",
        *,
        more: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        self._title, self._style, self._more = plain(title), style, more
        self._raw: deque[str] = deque(lines, maxlen=LINES_MAX)
        self._top = 0
        self._follows = more is not None
        self._folded: list[Line] = []
        self._folded_for = (0, 0)

    def move(self, key: str, rows: int) -> None:
        page = max(1, rows - 2)
        steps = {"up": -1, "down": 1, "enter": 1, "page up": -page, "page down": page}
        steps |= {"home": -LINES_MAX * 100, "end": LINES_MAX * 100}
        if key in steps:
            last = max(0, len(self._folded) - (rows - 1))
            self._top = min(max(self._top + steps[key], 0), last)
            self._follows = self._more is not None and self._top == last

    def lines(self, columns: int, rows: int) -> list[Line]:
        new = list(self._more()) if self._more is not None else []
        self._raw.extend(new)
        if new or self._folded_for != (columns, len(self._raw)):
            self._folded = [part for line in self._raw for part in self._fold(line, columns)]
            self._folded_for = (columns, len(self._raw))
        last = max(0, len(self._folded) - (rows - 1))
        self._top = last if self._follows else min(self._top, last)
        end = min(self._top + rows - 1, len(self._folded))
        where = f"{end}/{len(self._folded)}" + ("  follows" if self._follows else "")
        title = cut(self._title, max(1, columns - len(where) - 2))
        head = pad(title, columns - len(where)) + where
        return [(head, "reverse"), *self._folded[self._top : end]]

    def _fold(self, line: str, columns: int) -> Iterator[Line]:
        style = self._style(line)
        if cell_width(line) <= columns:
            yield line, style
            return
        part, width = "", 0
        for char in line:
            size = cell_width(char)
            if width + size > columns:
                yield part, style
                part, width = "", 0
            part, width = part + char, width + size
        yield part, style
