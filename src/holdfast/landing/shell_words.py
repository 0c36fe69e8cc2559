"""Reads the simple commands out of a gate's command, as far as that is possible without running it.

    PATH=/x/bin:$PATH cd sub && timeout 60 python -m pytest     one command: python -m pytest, in sub, with that PATH

What a shell would compute (substitutions, unknown variables, functions) stays as it is written.
"""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

import msgspec

_PUNCTUATION = "();<>|&\n"
_ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
# Words before a command that are no command.
_KEYWORDS = frozenset(("if", "then", "elif", "else", "do", "while", "until", "!", "{", "}", "fi", "done", "time"))
# Programs that run the command behind them, and those of their options that take a value.
_WRAPPERS: Mapping[str, str] = {
    "env": "-u -C -S", "exec": "-a", "command": "", "nohup": "", "nice": "-n", "ionice": "-c -n", "timeout": "-k -s",
    "sudo": "-u -g", "stdbuf": "-i -o -e", "setsid": "", "xvfb-run": "-n -s",
}  # fmt: skip
_SHELLS = frozenset(("sh", "bash", "dash", "zsh"))
DEPTH_MAX = 3


class SimpleCommand(msgspec.Struct, frozen=True):
    """`words`: the program and its arguments, without what only runs it. `folder`: where it runs; relative to the
    gate's worktree unless absolute. `variables`: what the command line itself assigns. `sourced`: scripts that the
    shell has read before."""

    words: tuple[str, ...]
    folder: str = ""
    variables: Mapping[str, str] = {}
    sourced: tuple[str, ...] = ()


def simple_commands(command: str | Sequence[str], environ: Mapping[str, str], depth: int = 0) -> list[SimpleCommand]:
    """The commands of a gate in their order; none where its text cannot be read."""
    if not isinstance(command, str):
        found = _Reader(environ, depth)
        found.add(list(command))
        return found.commands
    try:
        tokens = list(_tokens(command.replace("\\\n", "")))
    except ValueError:
        return []
    reader = _Reader(environ, depth)
    words: list[str] = []
    is_target = False
    for token in tokens:
        if token.strip(_PUNCTUATION):
            if not is_target:
                words.append(token)
            is_target = False
        elif "<" in token or ">" in token:
            # A redirection: the next word is a file. A number before it is the descriptor.
            is_target = True
            if words and words[-1].isdigit():
                words.pop()
        else:
            reader.add(words)
            words, is_target = [], False
            reader.nest(token)
    reader.add(words)
    return reader.commands


def _tokens(text: str) -> Iterator[str]:
    found = shlex.shlex(text, posix=True, punctuation_chars=_PUNCTUATION)
    found.whitespace = " \t\r"
    found.whitespace_split = True
    found.commenters = "#"
    return iter(found)


class _Reader:
    """Follows the folder and the variables from one simple command to the next."""

    def __init__(self, environ: Mapping[str, str], depth: int) -> None:
        self.commands: list[SimpleCommand] = []
        self._environ, self._depth = environ, depth
        self._folder, self._assigned, self._sourced = "", dict[str, str](), tuple[str, ...]()
        self._outer: list[str] = []

    def nest(self, punctuation: str) -> None:
        """A subshell's `cd` is its own."""
        for char in punctuation:
            if char == "(":
                self._outer.append(self._folder)
            elif char == ")" and self._outer:
                self._folder = self._outer.pop()

    def add(self, words: list[str]) -> None:
        own, words = self._without_wrappers(words)
        if not words:
            self._assigned |= own
            return
        match words:
            case ["export", *rest]:
                self._assigned |= self._assignments(rest)[0]
            case ["cd", *rest] if rest:
                self._folder = os.path.normpath(os.path.join(self._folder, self._expanded(rest[-1])))
                self.commands.append(SimpleCommand(("cd",), self._folder))
            case ["." | "source", script, *_]:
                self._sourced = (*self._sourced, self._expanded(script))
            case [program, "-c", text, *_] if os.path.basename(program) in _SHELLS and self._depth < DEPTH_MAX:
                for each in simple_commands(text, {**self._environ, **self._assigned, **own}, self._depth + 1):
                    self._keep(list(each.words), {**own, **each.variables}, each.folder, each.sourced)
            case _:
                self._keep(words, own)

    def _keep(self, words: list[str], own: dict[str, str], inside: str = "", sourced: tuple[str, ...] = ()) -> None:
        folder = os.path.normpath(os.path.join(self._folder, inside)) if inside else self._folder
        expanded = tuple(self._expanded(word) for word in words)
        self.commands.append(SimpleCommand(expanded, folder, {**self._assigned, **own}, (*self._sourced, *sourced)))

    def _without_wrappers(self, words: list[str]) -> tuple[dict[str, str], list[str]]:
        assigned: dict[str, str] = {}
        while True:
            more, words = self._assignments(words)
            assigned |= more
            if words and words[0] in _KEYWORDS:
                words = words[1:]
            elif words and (name := os.path.basename(words[0])) in _WRAPPERS:
                words = _behind_options(words[1:], _WRAPPERS[name].split())
                # The time that `timeout` gives comes before the command.
                words = words[1:] if name == "timeout" else words
            else:
                return assigned, words

    def _assignments(self, words: list[str]) -> tuple[dict[str, str], list[str]]:
        count = next((n for n, word in enumerate(words) if not _ASSIGNED.match(word)), len(words))
        pairs = (word.partition("=") for word in words[:count])
        return {name: self._expanded(value) for name, _, value in pairs}, words[count:]

    def _expanded(self, word: str) -> str:
        known = {**self._environ, **self._assigned}
        home = known.get("HOME", "~")
        word = home + word[1:] if word == "~" or word.startswith("~/") else word
        return _VARIABLE.sub(lambda found: known.get(found[1] or found[2], found[0]), word)


def _behind_options(words: list[str], with_value: list[str]) -> list[str]:
    while words and words[0].startswith("-"):
        taken = 2 if words[0] in with_value else 1
        words = words[1:] if words[0] == "--" else words[taken:]
    return words
