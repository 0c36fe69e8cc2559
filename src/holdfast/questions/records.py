"""A question of an agent's, its answer, and the words in which the agent gets it."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

INPUT_CHARS_MAX, PREVIEW_CHARS_MAX, WORDS_CHARS_MAX = 4096, 16_384, 16_384
QUESTIONS_MAX = 100
_CUT = "\n… (cut)"

# `permission`: may it make this call? `words`: it wants to know something.
Kind = Literal["permission", "words"]
# `say` answers in words.
AnswerKind = Literal["allow", "deny", "say"]


class Verdict(msgspec.Struct, frozen=True):
    """The reply to an agent about a call that it asked for. `defer`: to end now, and to be resumed with the answer.

    `is_answer`: it answers a question that was put to a person; otherwise a rule decided.
    """

    decision: Literal["allow", "deny", "say", "defer", "own"]
    words: str = ""
    is_answer: bool = False


class QuestionAsked(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An agent needs a person: for leave to make a call, or for words. `id` is `<attempt>.q<n>`.

    `turn`: the last turn that the attempt had completed. `digest`: of the whole input, of which `input` is the
    beginning. `held`: the agent waits for the answer as a process; otherwise it has ended.
    """

    id: str
    task: str
    attempt: str
    start: int
    turn: int
    tool: str
    input: str
    digest: str
    argument: str = ""
    preview: str = ""
    kind: Kind = "permission"
    held: bool = False


class Question(QuestionAsked, frozen=True, gc=False, kw_only=True):
    """One question, as the runner wrote it and as the task remembers it: what was asked, and the answer."""

    asked_at: float = 0.0
    # Empty while nobody has answered.
    answer: str = ""
    words: str = ""
    by: str = ""
    rule: str = ""
    answered_at: float = 0.0

    @property
    def is_open(self) -> bool:
        return not self.answer

    @property
    def number(self) -> int:
        return int(self.id.rpartition(".q")[2])

    @property
    def answer_command(self) -> str:
        """What a person types to answer it."""
        ways = "--say WORDS" if self.kind == "words" else "--allow | --always | --deny WHY"
        return f"holdfast answer {self.id} {ways}"

    def is_equal(self, tool: str, digest: str, turn: int) -> bool:
        """Whether it is the same question: a turn later it is another one."""
        return (self.tool, self.digest, self.turn) == (tool, digest, turn)

    @property
    def verdict(self) -> Verdict:
        """The answer as the agent gets it."""
        assert self.answer, "it is answered"
        if self.answer == "allow":
            return Verdict("allow", is_answer=True)
        if self.answer == "say":
            if self.kind == "words":
                return Verdict("say", self.words, is_answer=True)
            # Words are no leave to make a call.
            return Verdict("deny", f"A person says: {self.words}", is_answer=True)
        who = "Nobody answered in time, so this" if self.by == TIMEOUT else "A person was asked, and this"
        told = f"{who} is not allowed{': ' + self.words if self.words else '.'}"
        return Verdict("deny", told, is_answer=True)


# Who answered where nobody did in time.
TIMEOUT = "timeout"


class AnswerFile(msgspec.Struct, frozen=True):
    """The file by which a living runner learns of the answer to a question that its agent waits for."""

    id: str
    verdict: Verdict


def id_of(attempt: str, number: int) -> str:
    return f"{attempt}.q{number}"


def digest_of(given: str) -> str:
    """The SHA-256 of an input. The order of the keys of a JSON object, and its white space, make no difference."""
    try:
        text = msgspec.json.encode(msgspec.json.decode(given), order="deterministic")
    except (msgspec.DecodeError, ValueError):
        text = given.encode(errors="replace")
    return hashlib.sha256(text).hexdigest()


def bounded(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + _CUT


# -- what it would do --------------------------------------------------------------------------------------------------


def preview_of(given: str) -> str:
    """What a call would do, for a person to see: the command, the diff of a file, or the words of a question."""
    try:
        fields: Any = msgspec.json.decode(given)
    except (msgspec.DecodeError, ValueError):
        return given
    if not isinstance(fields, dict):
        return given
    if isinstance(fields.get("questions"), list):
        return "\n\n".join(_question(each) for each in fields["questions"] if isinstance(each, dict))
    for name in ("command", "cmd"):
        if isinstance(fields.get(name), str):
            return f"$ {fields[name]}"
        if isinstance(fields.get(name), list):
            return "$ " + " ".join(map(str, fields[name]))
    path = next(
        (fields[name] for name in ("file_path", "notebook_path", "path") if isinstance(fields.get(name), str)), ""
    )
    edits = fields["edits"] if isinstance(fields.get("edits"), list) else [fields]
    changes = [change for each in edits if isinstance(each, dict) and (change := _change(each))]
    if path and changes:
        return "\n".join([f"--- {path}", f"+++ {path}", *changes])
    return msgspec.json.format(msgspec.json.encode(fields), indent=2).decode()


def _question(fields: dict[str, Any]) -> str:
    options = fields.get("options")
    labels = (
        [each.get("label") if isinstance(each, dict) else each for each in options] if isinstance(options, list) else []
    )
    return "\n".join([str(fields.get("question", "")), *(f"- {label}" for label in labels)])


def _change(edit: dict[str, Any]) -> str:
    """One edit as the lines of a diff, without its place: the tool finds that by the text."""
    old, new = (edit.get(name) for name in ("old_string", "new_string"))
    if isinstance(edit.get("content"), str):
        old, new = "", edit["content"]
    if not isinstance(old, str) or not isinstance(new, str):
        return ""
    if len(old) + len(new) >= PREVIEW_CHARS_MAX:
        return "\n".join(f"+{line}" for line in new.splitlines())
    # Where it is needed: every command reads entries, and few of them are questions about edits.
    import difflib

    # Not `ndiff`, whose time an agent could choose: it compares every line with every other, letter by letter.
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=len(old), lineterm="")
    return "\n".join(list(lines)[3:])
