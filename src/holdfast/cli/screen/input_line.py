"""A text that is typed at the bottom of a full screen: a message to an agent, or the answer to its question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.cli.screen.fullscreen import Line
from holdfast.cli.screen.table import cell_width, wrapped
from holdfast.domain.wording import plain
from holdfast.questions.records import Question

INPUT_KEYS = "Enter sends   Ctrl-U clears   Esc leaves, and keeps the text"
TEXT_CHARS_MAX = 16_000
_HEAD_LINES_MAX = 5


class InputLine:
    """`text` may be one that was left unsent before. `decision` makes of it what is decided, by name and parameters."""

    def __init__(self, head: str, decision: Callable[[str], tuple[str, dict[str, Any]]], text: str = "") -> None:
        self._head, self.decision, self.text = head, decision, text
        self.is_left = self.is_sent = False

    def typed(self, keys: Sequence[str]) -> None:
        """Takes keys that came together."""
        for number, key in enumerate(keys):
            if key == "escape":
                self.is_left = True
                return
            if key == "enter" and number < len(keys) - 1:
                # In the middle of what was pasted.
                self.text += "\n"
            elif key == "enter":
                self.is_sent = self.is_left = bool(self.text.strip())
            elif key == "backspace":
                self.text = self.text[:-1]
            elif key == "clear":
                self.text = ""
            else:
                self.text = (self.text + key)[:TEXT_CHARS_MAX]

    def lines(self, columns: int) -> list[Line]:
        head = [line for part in self._head.split("\n") for line in wrapped(plain(part), columns, _HEAD_LINES_MAX)]
        if len(head) > _HEAD_LINES_MAX:
            head = [*head[: _HEAD_LINES_MAX - 1], "…"]
        # Of a long text its end, where the next letter comes.
        shown = plain(self.text.replace("\n", " ⏎ "))
        most = columns - cell_width("> ▏") - 1
        if cell_width(shown) > most:
            while cell_width(shown) > most - 1:
                shown = shown[1:]
            shown = f"…{shown}"
        return [*((line, "bold yellow") for line in head), (f"> {shown}▏", "bold")]


def question_head(question: Question) -> str:
    """What the agent asks, and what the answer means."""
    if question.kind == "words":
        return f"{question.id} asks: {question.preview}"
    return (
        f"{question.id} wants to call {question.tool}: {question.preview}\n"
        "Type allow, or always; any other words deny it, and are the reason."
    )


def reply(question: Question, words: str) -> dict[str, Any]:
    """The decision `answer` in what was typed. Only the exact word allows a call."""
    asked: dict[str, Any] = {"question": question.id}
    if question.kind == "words":
        return {**asked, "answer": "say", "words": words}
    if words in ("allow", "always"):
        return {**asked, "answer": "allow", "always": words == "always"}
    return {**asked, "answer": "deny", "words": words}
