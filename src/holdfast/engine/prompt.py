"""What an agent is told: the task, how it will be judged, where it may work, and what became of it so far.

The words are a template, `config/prompt.md` in the data root where there is one. An agent that can resume its
conversation knows what it did, but perhaps not its last turn; for one that cannot, its history is told from
`traces.jsonl`.
"""

from __future__ import annotations

import msgspec

from holdfast.config.settings import Config
from holdfast.domain.attempt import Exit
from holdfast.domain.definition import Check, Definition, fork_source
from holdfast.domain.state import Task
from holdfast.domain.template import check, render
from holdfast.durable import jsonl
from holdfast.durable.blobs import Blobs
from holdfast.errors import InputError, TemplateUnreadable
from holdfast.layout import Attempt, Layout

HISTORY_CHARS_MAX = 40_000
TRACE_CHARS_MAX = 2_000

# What a template may name.
FIELDS = (
    "task", "attempt", "title", "goal", "context", "files", "acceptance", "paths", "earlier", "feedback", "conflicts",
    "interrupted", "history",
)  # fmt: skip
TEMPLATE = """\
{{#title}}
# {{title}}

{{/title}}
{{#goal}}
{{goal}}

{{/goal}}
{{#context}}
## Context

{{context}}

{{/context}}
{{#files}}
## Files to look at first

{{files}}

{{/files}}
{{#acceptance}}
## When it is done

Your work is accepted when these commands pass:

{{acceptance}}

{{/acceptance}}
{{#paths}}
Change nothing outside of: {{paths}}

{{/paths}}
## Where you work

The current folder is a git worktree of its own. Work only there. What you leave in it is taken, committed or not; you
need not commit, and must not push.

{{#earlier}}
## Earlier attempts

{{earlier}}

{{/earlier}}
{{#feedback}}
## Why the last attempt did not land

{{feedback}}

{{/feedback}}
{{#conflicts}}
## Conflicts to resolve

The worktree holds your work merged with the newest state of the target branch. These files have conflict markers:

{{conflicts}}

{{/conflicts}}
{{#interrupted}}
## Where you were

{{interrupted}}

{{/interrupted}}
{{#history}}
## What you did so far

{{history}}

{{/history}}
"""


class Words(msgspec.Struct, frozen=True):
    """Where the parts of a prompt come from."""

    layout: Layout
    blobs: Blobs
    config: Config


def prompt(words: Words, task: Task, made: Definition, conflicts: list[str], *, resumes: bool = False) -> str:
    """The whole text. `resumes`: the agent goes on with a conversation that it remembers."""
    feedback = words.blobs.get(task.feedback).decode(errors="replace") if task.feedback else ""
    values = {
        "task": task.id,
        "attempt": task.attempt,
        "title": made.title or "",
        "goal": made.goal or "",
        "context": _context(made),
        "files": _listed(_files(made)),
        "acceptance": _listed([_line(check) for check in made.verify] + _gates(words.config)),
        "paths": ", ".join(made.paths),
        "earlier": _earlier(words.layout, task),
        "feedback": feedback or _forked(made),
        "conflicts": _listed(conflicts),
        "interrupted": _interrupted(task),
        "history": _last_turn(words.layout, task) if resumes else _history(words.layout, task),
    }
    return render(template(words.layout), values, str(words.layout.prompt_template))


def template(layout: Layout) -> str:
    """The user's own, where there is one. Raises TemplateUnreadable."""
    own = layout.prompt_template
    try:
        text = own.read_text(encoding="utf-8")
    except FileNotFoundError:
        return TEMPLATE
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateUnreadable(name=own, reason=getattr(error, "strerror", None) or str(error)) from None
    if not text.strip():
        raise TemplateUnreadable(name=own, reason="it is empty, and an agent would be told nothing")
    return text


def template_problem(layout: Layout) -> str:
    """What is wrong with the template, as a sentence: it would be so for every task. Empty where nothing is."""
    try:
        check(template(layout), FIELDS, str(layout.prompt_template))
    except InputError as error:
        return str(error)
    return ""


def _listed(items: list[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _gates(config: Config) -> list[str]:
    return [gate.command for gate in config.gates if gate.required]


def _line(check: Check) -> str:
    return check.command if isinstance(check.command, str) else " ".join(check.command)


def _files(made: Definition) -> list[str]:
    """`context: {files: […]}` names files of the repository; all else of it is told as it is."""
    files = made.context.get("files", ()) if isinstance(made.context, dict) else ()
    return [str(each) for each in files] if isinstance(files, list | tuple) else [str(files)]


def _context(made: Definition) -> str:
    if made.context is None or isinstance(made.context, str):
        return made.context or ""
    rest = made.context
    if isinstance(rest, dict):
        rest = {key: value for key, value in rest.items() if key != "files"}
    return msgspec.json.format(msgspec.json.encode(rest)).decode() if rest else ""


def _forked(made: Definition) -> str:
    source = fork_source(made)
    return f"The worktree begins with what turn {source[1]} of {source[0]} left. Go on from it." if source else ""


def _interrupted(task: Task) -> str:
    if not task.starts:
        return ""
    if task.undone:
        return (
            f"You have worked on this before. A person put the worktree back to what turn {task.turn - task.undone} "
            "left. Look at what is there, then go on from it."
        )
    return (
        f"You have worked on this before and were interrupted after turn {task.turn}. The worktree is as that turn "
        "left it, or later. Look at what is there, then go on."
    )


def _earlier(layout: Layout, task: Task) -> str:
    """One line for each attempt before this one: how far it came, and how it ended."""
    lines = []
    for number in range(1, task.attempts):
        ended = _read_exit(layout.attempt_files(f"{task.id}.{number}"))
        if ended is not None:
            detail = f": {ended.detail}" if ended.detail else ""
            lines.append(f"attempt {number}: {ended.turn} turns, ended as {ended.ending}{detail}")
    return _listed(lines)


def _read_exit(files: Attempt) -> Exit | None:
    try:
        return msgspec.json.decode(files.exit.read_bytes(), type=Exit)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _history(layout: Layout, task: Task) -> str:
    """What the attempts so far said and did, from the traces; of a long history the end."""
    told: list[str] = []
    first = task.attempts if task.starts else task.attempts - 1
    for number in range(max(1, first), task.attempts + 1):
        files = layout.attempt_files(f"{task.id}.{number}")
        if files.traces.exists():
            told += [_trace(line.record) for line in jsonl.Ledger(files.traces).read()]
    text = "\n".join(told)
    if len(text) <= HISTORY_CHARS_MAX:
        return text
    return "(the beginning is left out)\n" + text[-HISTORY_CHARS_MAX:].partition("\n")[2]


def _last_turn(layout: Layout, task: Task) -> str:
    """The end of what was saved: an agent that was killed may not have written down its last call's result."""
    files = layout.attempt_files(task.attempt)
    if not task.starts or not task.turn or not files.traces.exists():
        return ""
    records = [line.record for line in jsonl.Ledger(files.traces).read()]
    return "\n".join(_trace(record) for record in records if record.get("turn") == task.turn)


def _trace(record: dict[str, object]) -> str:
    if record.get("kind") == "said":
        return f"You said: {_cut(record.get('text'))}"
    ended = "" if record.get("ok") else " (it failed)"
    called = f"You called {record.get('name')} with {_cut(record.get('input'))}{ended}"
    return f"{called}, and got: {_cut(record.get('output'))}"


def _cut(value: object) -> str:
    text = str(value or "")
    return text if len(text) <= TRACE_CHARS_MAX else f"{text[:TRACE_CHARS_MAX]}…"
