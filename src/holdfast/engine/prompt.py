"""Writes an agent's prompt: the task, how it will be judged, where it may work, and its history.

The words are a template, `config/prompt.md` in the data root where there is one. An agent that can resume its
conversation knows what it did, but perhaps not its last turn; for one that cannot, its history is added from
`traces.jsonl`.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.config.settings import Config
from holdfast.domain.definition import Definition, fork_source
from holdfast.domain.task_record import Past, PreviousAttempt, Task, standing
from holdfast.domain.template import check, render
from holdfast.errors import InputError, TemplateUnreadable
from holdfast.landing import gate_kinds
from holdfast.layout import Layout
from holdfast.questions.records import Question
from holdfast.storage.records import ledger
from holdfast.storage.records.blobs import Blobs

HISTORY_CHARS_MAX = 40_000
TRACE_CHARS_MAX = 2_000
FILES_MAX = 50
# By what an agent speaks to a run that serves: the tools of our MCP server, or the command `holdfast-agent`.
WayBack = Literal["", "tools", "command"]

# What a template may name.
FIELDS = (
    "task", "attempt", "title", "goal", "context", "files", "acceptance", "paths", "earlier", "feedback", "conflicts",
    "interrupted", "history", "told", "tools",
)  # fmt: skip
# Also added to a template of the user's own that has no place for it: a person's message always reaches the agent.
TOLD = """\
{{#told}}
## What a person tells you now

{{told}}

{{/told}}
"""
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

{{#tools}}
## Whom to tell

{{tools}}

{{/tools}}
{{#earlier}}
## Earlier attempts

{{earlier}}

{{/earlier}}
{{#feedback}}
## What was said of your work

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
TEMPLATE += TOLD


class Words(msgspec.Struct, frozen=True):
    """The sources of a prompt's parts. `way_back`: by what the agent speaks to the run."""

    layout: Layout
    blobs: Blobs
    config: Config
    way_back: WayBack = ""


class PromptTree(msgspec.Struct, frozen=True):
    """The worktree as the agent finds it. `begun_by`: whose work it begins with, where no candidate was made of it.

    `differing`: files that the agent changed after its last turn; `is_kept`: they are as it left them.
    """

    conflicts: list[str] = []
    begun_by: PreviousAttempt | None = None
    differing: list[str] = []
    is_kept: bool = False


def prompt(words: Words, task: Task, made: Definition, tree: PromptTree, *, resumes: bool = False) -> str:
    """The whole text. `resumes`: the agent goes on with a conversation that it remembers."""
    feedback = words.blobs.get(task.feedback).decode(errors="replace") if task.feedback else ""
    if not feedback and (source := fork_source(made)):
        feedback = f"The worktree begins with what turn {source[1]} of {source[0]} left. Go on from it."
    gates = [*(each.command for each in made.verify), *(each.command for each in words.config.gates if each.required)]
    resolved = [gate_kinds.resolved(command, words.config) for command in gates]
    commands = [command if isinstance(command, str) else shlex.join(command) for command in resolved]
    values = {
        "task": task.id,
        "attempt": task.attempt.id,
        # A stranger's title stands in the goal, in the quotation.
        "title": "" if made.origin is not None and not made.origin.trusted else made.title or "",
        "goal": made.goal or "",
        "context": _context(made),
        "files": _listed(_files(made)),
        "acceptance": _listed(commands),
        "paths": ", ".join(made.paths),
        "earlier": _listed([_past(each) for each in task.past if each.attempt != task.attempt.id]),
        "feedback": feedback,
        "conflicts": _listed(tree.conflicts),
        "interrupted": _interrupted(task, tree),
        "history": _last_turn(words.layout, task) if resumes else _history(words.layout, task),
        "told": _messages(words.layout, task),
        "tools": _tools(words.way_back),
    }
    text = template(words.layout)
    if "{{told}}" not in text:
        text = f"{text.rstrip()}\n\n{TOLD}"
    return render(text, values, str(words.layout.prompt_template))


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
    """The problem of a template, as a sentence, which every task would have; empty where there is none."""
    try:
        check(template(layout), FIELDS, str(layout.prompt_template))
    except InputError as error:
        return str(error)
    return ""


TOOLS = """\
The MCP server `holdfast` has tools for this task: `progress` says how it goes, `ask` puts a question to a person and
waits for the answer, `show` has the task as it is now. `split` divides the task into subtasks and `block` says that
another task has to come first: your process is ended then, and goes on when those are done."""
COMMANDS = """\
By `{command}` in a shell: `progress 'half done'` says how it goes, `ask 'which one?'` puts a question to a person and
prints the answer. `split 'one part' 'another'` divides the task into subtasks and `block TASK` says that another task
has to come first: your process is ended then, and goes on when those are done."""


def _tools(way_back: WayBack) -> str:
    if way_back != "command":
        return TOOLS if way_back else ""
    beside = Path(sys.executable).with_name("holdfast-agent")
    found = "holdfast-agent" if shutil.which("holdfast-agent") else shlex.quote(str(beside))
    module = f"{shlex.quote(sys.executable)} -m holdfast.mcp.agent_command"
    return COMMANDS.format(command=found if found == "holdfast-agent" or beside.exists() else module)


def _listed(items: list[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _files(made: Definition) -> list[str]:
    """`context: {files: […]}` names files of the repository; the rest is passed as it is."""
    files = made.context.get("files", ()) if isinstance(made.context, dict) else ()
    return [str(each) for each in files] if isinstance(files, list | tuple) else [str(files)]


def _context(made: Definition) -> str:
    if made.context is None or isinstance(made.context, str):
        return made.context or ""
    rest = made.context
    if isinstance(rest, dict):
        rest = {key: value for key, value in rest.items() if key != "files"}
    return msgspec.json.format(msgspec.json.encode(rest)).decode() if rest else ""


def _interrupted(task: Task, tree: PromptTree) -> str:
    if not task.start.number:
        return _begun(tree.begun_by)
    told, attempt = "You have worked on this before", task.attempt
    if task.was_taken:
        found = "A person has worked in this worktree since, and perhaps in this conversation. It is as they left it"
        return f"{told}. {found}. Look at what is there, then go on."
    if attempt.was_put_back:
        to = f"what turn {attempt.stands} left" if attempt.stands else "how you found it"
        return f"{told}. A person put the worktree back to {to}. Look at what is there, then go on from it."
    if answered := [each for each in task.questions if not each.is_open]:
        told += f". {' '.join(map(_answered, answered))} Go on from where you were"
        return f"{told}. The worktree is as you left it, or as your last turn left it."
    if task.candidate and task.made == attempt.at and not tree.differing:
        return f"{told}, and had finished. The worktree is as you left it. Go on from it."
    told += " and were interrupted " + (f"after turn {attempt.turn}" if attempt.turn else "in your first turn")
    found = "as that turn left it" if attempt.turn else "as you found it"
    if not tree.differing:
        return f"{told}. The worktree is {found}, or later. Look at what is there, then go on."
    if tree.is_kept:
        told += ". The worktree also holds what you have done since to these files. Look at it, then go on"
    else:
        told += f". The worktree is {found}: what you have done since to these files is not in it, and is yours to redo"
    more = len(tree.differing) - FILES_MAX
    names = [*tree.differing[:FILES_MAX], *([f"(and {more} more)"] if more > 0 else [])]
    return f"{told}:\n\n{_listed(names)}"


def _answered(question: Question) -> str:
    """What a person said to a question, for an agent that may not have heard it."""
    what = "asked" if question.kind == "words" else "asked for leave to call"
    asked = f"You {what} {question.tool}: {_cut(question.argument)}."
    if question.answer == "allow":
        return f"{asked} A person allowed it: make this very call again."
    return f"{asked} The answer: {question.verdict.words}"


def _messages(layout: Layout, task: Task) -> str:
    """A person's messages that no start is known to have seen. One given to a start that died may have been."""
    given = set[str]()
    for number in range(1, task.attempts + 1) if task.told else ():
        path = layout.attempt_files(f"{task.id}.{number}").told
        given |= {str(line.record.get("id")) for line in ledger.LineLedger(path).read()} if path.exists() else set()
    seen = "(You were interrupted, and may have seen this already.)\n"
    return "\n\n".join((seen if each.id in given else "") + each.text for each in task.told)


def _begun(left: PreviousAttempt | None) -> str:
    if left is None:
        return ""
    number = left.attempt.rpartition(".")[2]
    return (
        f"The worktree begins with what attempt {number} had done by the end of its turn {left.turn}, on top of the "
        "newest state of the target branch. None of it was accepted yet. Look at what is there, then go on from it."
    )


def _past(past: Past) -> str:
    """One line on an earlier attempt: its turns, and why it ended."""
    ended = f"{past.kind}: {past.detail}" if past.kind and past.detail else past.kind or "given up for another"
    return f"attempt {past.number}: {past.turn} {'turn' if past.turn == 1 else 'turns'}, {ended}"


def _history(layout: Layout, task: Task) -> str:
    """The messages and tool calls of the attempts so far, without what was undone; of a long history the end."""
    undone = {each.attempt: each for each in task.past}
    text = ""
    for number in range(task.attempts, 0, -1):
        attempt = f"{task.id}.{number}"
        of_past = undone.get(attempt)
        turn, undos = (of_past.turn, of_past.undos) if of_past is not None else (0, ())
        if attempt == task.attempt.id:
            turn, undos = task.attempt.turn, task.attempt.undos
        told = _attempt_history(layout, attempt, set(range(1, turn + 1)) - set(standing(turn, undos)))
        text = "\n".join(filter(None, (told, text)))
        if len(text) > HISTORY_CHARS_MAX:
            return "(the beginning is left out)\n" + text[-HISTORY_CHARS_MAX:].partition("\n")[2]
    return text


def _attempt_history(layout: Layout, attempt: str, undone: set[int]) -> str:
    traces = layout.attempt_files(attempt).traces
    records = (line.record for line in ledger.LineLedger(traces).read()) if traces.exists() else ()
    return "\n".join(_trace(record) for record in records if record.get("turn") not in undone)


def _last_turn(layout: Layout, task: Task) -> str:
    """The end of what was saved: an agent that was killed may not have written down its last call's result."""
    files = layout.attempt_files(task.attempt.id)
    if not task.start.number or not task.attempt.stands or not files.traces.exists():
        return ""
    records = [line.record for line in ledger.LineLedger(files.traces).read()]
    return "\n".join(_trace(record) for record in records if record.get("turn") == task.attempt.stands)


def _trace(record: dict[str, object]) -> str:
    if record.get("kind") == "said":
        return f"You said: {_cut(record.get('text'))}"
    if record.get("kind") == "told":
        return f"A person told you: {_cut(record.get('text'))}"
    ended = "" if record.get("ok") else " (it failed)"
    called = f"You called {record.get('name')} with {_cut(record.get('input'))}{ended}"
    return f"{called}, and got: {_cut(record.get('output'))}"


def _cut(value: object) -> str:
    text = str(value or "")
    return text if len(text) <= TRACE_CHARS_MAX else f"{text[:TRACE_CHARS_MAX]}…"
