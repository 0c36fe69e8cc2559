"""Decides from the rules whether a call of a tool is allowed, denied, or asked about.

A rule names a tool and a pattern of its argument, in which `*` stands for any text. The argument is the one text of the
call that says what it does: a shell command, a path, an address; without one, its whole input.

- A deny always wins, whatever allows the same call, and wherever it stands.
- In a rule that allows, `*` does not stand for what could make the call something else: characters by which a shell
  begins another command, and the folder `..`. Such a call is asked about.
- What no rule names is decided by the mode: `ask` asks, `skip` allows, `edits` and `own` leave it to the agent's CLI.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Literal

import msgspec

Mode = Literal["skip", "edits", "own", "ask"]
Decision = Literal["allow", "deny", "ask", "own"]

# By which a shell goes on with another command, or puts something else in place.
_SHELL = re.compile(r"[;&|<>`$()\n\r\x00]")
_UP = re.compile(r"(?:^|[/\s='\"])\.\.(?:$|[/\s'\"])")
# Where the inputs of tools have what they do, the first that is there.
_ARGUMENTS = ("command", "cmd", "file_path", "notebook_path", "path", "url", "query", "pattern")
_OTHERWISE: dict[str, Decision] = {"skip": "allow", "ask": "ask", "edits": "own", "own": "own"}


class PermissionRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`tool` and `input` are patterns with `*`; `input` is compared with the call's argument."""

    do: Literal["allow", "deny", "ask"]
    tool: str
    input: str = "*"

    def __str__(self) -> str:
        return f"{self.do} {self.tool}" + (f" {self.input}" if self.input != "*" else "")


class PermissionPolicy(msgspec.Struct, frozen=True):
    """What an agent may do in one start. `mode`: what counts for a call that no rule names."""

    mode: Mode = "skip"
    rules: tuple[PermissionRule, ...] = ()

    @property
    def is_kept(self) -> bool:
        """Whether calls have to be looked at: with `skip` and no rule, as with the CLI's own modes, nobody does."""
        return self.mode == "ask" or bool(self.rules)

    def decide(self, tool: str, argument: str) -> tuple[Decision, PermissionRule | None]:
        """The decision, and the rule that made it."""
        found: dict[str, PermissionRule] = {}
        for rule in self.rules:
            if rule.do not in found and _fits(rule, tool, argument):
                found[rule.do] = rule
        for decision in ("deny", "ask", "allow"):
            if (made_by := found.get(decision)) is not None:
                return made_by.do, made_by
        return _OTHERWISE[self.mode], None


def argument_of(given: str, worktree: str = "") -> str:
    """The argument of a call's input. A path in the worktree is one from its top."""
    try:
        fields: Any = msgspec.json.decode(given)
    except (msgspec.DecodeError, ValueError):
        fields = given
    if isinstance(fields, dict):
        found = next((fields[name] for name in _ARGUMENTS if name in fields), None)
        if isinstance(found, list) and all(isinstance(part, str) for part in found):
            found = " ".join(found)
        given = found if isinstance(found, str) else given
    top = f"{worktree.rstrip('/')}/"
    return given.removeprefix(top) if worktree else given


def exactly(tool: str, argument: str) -> PermissionRule:
    """The rule that allows just this call."""
    return PermissionRule("allow", _escaped(tool), _escaped(argument))


def _escaped(text: str) -> str:
    return re.sub(r"[*\\]", lambda found: f"\\{found[0]}", text)


def _fits(rule: PermissionRule, tool: str, argument: str) -> bool:
    if _wild(rule.tool, tool) is None:
        return False
    found = _wild(rule.input, argument)
    if found is None or rule.do != "allow" or rule.input == "*":
        return found is not None
    return not any(_SHELL.search(part) or _UP.search(part) for part in found)


def _wild(glob: str, text: str) -> list[str] | None:
    """The texts for which the stars stand; None where it does not match. Takes time in proportion to the text."""
    first, *rest = _literals(glob)
    if not rest:
        return [] if text == first else None
    if not text.startswith(first):
        return None
    found, at = [], len(first)
    for literal in rest[:-1]:
        place = text.find(literal, at)
        if place < 0:
            return None
        found.append(text[at:place])
        at = place + len(literal)
    last = rest[-1]
    if len(text) - at < len(last) or not text.endswith(last):
        return None
    return [*found, text[at : len(text) - len(last)]]


@functools.lru_cache(maxsize=1000)
def _literals(glob: str) -> tuple[str, ...]:
    """The parts between the stars. A backslash takes the next character for itself."""
    parts = [""]
    for token in re.findall(r"\\.|\*+|[^*\\]+|\\", glob, re.DOTALL):
        if token[0] == "*":
            parts.append("")
        else:
            parts[-1] += token[1:] if len(token) == 2 and token[0] == "\\" else token
    return tuple(parts)
