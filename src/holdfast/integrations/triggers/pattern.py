"""Regular expressions whose time grows with the text alone.

Patterns of rules meet texts of strangers, and Python's `re` tries alternatives one after the other: a pattern such as
`(a+)+b` takes hours on a line of `a`. Here all alternatives are followed at once, as a set of states (Thompson's way),
and sets that came before are remembered. So there is no look-ahead and no back-reference. The rest of the usual syntax
is here: classes, groups, alternatives, repeats, anchors, and the flags `(?i)`, `(?m)` and `(?s)` at the beginning.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

from holdfast.errors import PatternInvalid

PATTERN_CHARS_MAX, STATES_MAX, REPEAT_MAX, DEPTH_MAX = 500, 1000, 200, 30
TEXT_CHARS_MAX = 20_000
# Of one search: then it is given up, and the rule does not fire.
STEPS_MAX = 2_000_000
_REMEMBERED_MAX = 20_000
_REPEAT = re.compile(r"\{(\d*)(,?)(\d*)\}")
_FLAGS = re.compile(r"\(\?([ims]+)\)")
_ESCAPED = re.compile(r"\\(?:[dDwWsStnrfv]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[^A-Za-z0-9])")
_CLASS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]", re.DOTALL)
_GROUP = re.compile(r"\?(?::|P<[A-Za-z_]\w*>)")
_ANCHORS = {"^": "begin", "$": "end", "\\A": "first", "\\Z": "last", "\\b": "edge", "\\B": "inside"}
Tree = tuple[Any, ...]


class PatternTooSlow(Exception):
    """The text took more steps than a search may have."""


class Pattern:
    """Compiled once; `is_in` says whether it matches somewhere in a text. Raises PatternInvalid."""

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_CHARS_MAX:
            raise PatternInvalid(pattern=text[:40], reason=f"it is longer than {PATTERN_CHARS_MAX} characters")
        self.text = text
        flags = _FLAGS.match(text)
        self._flags = sum(getattr(re, each.upper()) for each in set(flags[1])) if flags else 0
        self._at = flags.end() if flags else 0
        self._depth = 0
        # Each state: its kind, a value, and the states behind it.
        self._states: list[tuple[str, Any, tuple[int, ...]]] = [("match", None, ())]
        node = self._alternatives()
        if self._at < len(text):
            raise self._invalid("a ) closes nothing")
        self._start = self._compile(node, 0)
        self._moves: dict[tuple[frozenset[int], str, str], tuple[bool, frozenset[int]]] = {}

    def is_in(self, text: str) -> bool:
        """Looks at the first characters of the text. Raises PatternTooSlow."""
        states: frozenset[int] = frozenset()
        left, before = STEPS_MAX, ""
        text = text[:TEXT_CHARS_MAX]
        for char in (*text, ""):
            key = (states, _class_of(before), char)
            found = self._moves.get(key)
            if found is None:
                if len(self._moves) >= _REMEMBERED_MAX:
                    self._moves.clear()
                found, steps = self._step(states, before, char)
                self._moves[key] = found
                left -= steps
                if left < 0:
                    raise PatternTooSlow(self.text)
            is_match, states = found
            if is_match:
                return True
            before = char
        return False

    def _step(self, states: frozenset[int], before: str, char: str) -> tuple[tuple[bool, frozenset[int]], int]:
        todo, seen = [*states, self._start], set[int]()
        behind: set[int] = set()
        while todo:
            number = todo.pop()
            if number in seen:
                continue
            seen.add(number)
            kind, value, targets = self._states[number]
            if kind == "match":
                return (True, frozenset()), len(seen)
            if kind == "char":
                if char and value.fullmatch(char):
                    behind.update(targets)
            elif kind == "split" or self._holds(value, before, char):
                todo += targets
        return (False, frozenset(behind)), len(seen) + 1

    def _holds(self, anchor: str, before: str, char: str) -> bool:
        is_multi = bool(self._flags & re.MULTILINE)
        match anchor:
            case "first":
                return not before
            case "last":
                return not char
            case "begin":
                return not before or (is_multi and before == "\n")
            case "end":
                return not char or (is_multi and char == "\n")
        return (_is_word(before) != _is_word(char)) == (anchor == "edge")

    # -- the text, as a tree ------------------------------------------------------------------------------------------

    def _alternatives(self) -> Tree:
        found = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            found.append(self._sequence())
        return ("or", *found) if len(found) > 1 else found[0]

    def _sequence(self) -> Tree:
        found: list[Tree] = []
        while self._peek() not in ("", "|", ")"):
            found.append(self._repeated(self._atom()))
        return ("then", *found)

    def _repeated(self, node: Tree) -> Tree:
        bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(self._peek())
        if bounds is not None:
            self._at += 1
        elif (found := _REPEAT.match(self.text, self._at)) and (found[1] or found[3]):
            self._at = found.end()
            least = int(found[1] or 0)
            bounds = (least, (int(found[3]) if found[3] else None) if found[2] else least)
        if bounds is None:
            return node
        least, most = bounds
        if max(least, most or 0) > REPEAT_MAX or (most is not None and most < least):
            raise self._invalid(f"a repeat is 0 to {REPEAT_MAX} times")
        if node[0] == "at":
            raise self._invalid("an anchor cannot be repeated")
        if self._peek() == "?":
            # A lazy repeat matches the same texts.
            self._at += 1
        if self._peek() in ("*", "+", "?") or _REPEAT.match(self.text, self._at):
            raise self._invalid("two repeats follow each other")
        return ("repeat", node, least, most)

    def _atom(self) -> Tree:
        char = self._peek()
        if char == "(":
            return self._group()
        if char == "[":
            found = _CLASS.match(self.text, self._at)
            if found is None:
                raise self._invalid("a [ is not closed")
            return self._one(found[0])
        if char == "\\":
            pair = self.text[self._at : self._at + 2]
            if pair in _ANCHORS:
                self._at += 2
                return ("at", _ANCHORS[pair])
            found = _ESCAPED.match(self.text, self._at)
            if found is None:
                raise self._invalid(f"{pair} is not supported")
            return self._one(found[0])
        if char in ("*", "+", "?"):
            raise self._invalid(f"{char} has nothing to repeat")
        if char in _ANCHORS:
            self._at += 1
            return ("at", _ANCHORS[char])
        return self._one(char, "." if char == "." else re.escape(char))

    def _group(self) -> Tree:
        self._at += 1
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._invalid(f"groups stand inside each other more than {DEPTH_MAX} deep")
        if self._peek() == "?":
            found = _GROUP.match(self.text, self._at)
            if found is None:
                raise self._invalid("of groups with a question mark only (?: and (?P<name> are supported")
            self._at = found.end()
        node = self._alternatives()
        if self._peek() != ")":
            raise self._invalid("a ( is not closed")
        self._at += 1
        self._depth -= 1
        return node

    def _one(self, source: str, pattern: str = "") -> Tree:
        """What stands for one character: Python's own rules say which."""
        self._at += len(source)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                return ("char", re.compile(pattern or source, self._flags))
        except re.error as error:
            raise self._invalid(str(error)) from None

    def _peek(self) -> str:
        return self.text[self._at : self._at + 1]

    def _invalid(self, reason: str) -> PatternInvalid:
        return PatternInvalid(pattern=self.text, reason=f"{reason} (at character {self._at + 1})")

    # -- the tree, as states ------------------------------------------------------------------------------------------

    def _compile(self, node: Tree, behind: int) -> int:
        """Adds the states of a node that leads to `behind`; returns the first of them."""
        match node[0]:
            case "char":
                return self._add("char", node[1], behind)
            case "at":
                return self._add("at", node[1], behind)
            case "then":
                for each in reversed(node[1:]):
                    behind = self._compile(each, behind)
                return behind
            case "or":
                return self._add("split", None, *[self._compile(each, behind) for each in node[1:]])
        _, inner, least, most = node
        if most is None:
            again = self._add("split", None, behind)
            first = self._compile(inner, again)
            self._states[again] = ("split", None, (first, behind))
            behind = again
        else:
            end = behind
            for _ in range(most - least):
                behind = self._add("split", None, self._compile(inner, behind), end)
        for _ in range(least):
            behind = self._compile(inner, behind)
        return behind

    def _add(self, kind: str, value: Any, *behind: int) -> int:
        if len(self._states) >= STATES_MAX:
            raise PatternInvalid(pattern=self.text, reason="its repeats make it too large")
        self._states.append((kind, value, behind))
        return len(self._states) - 1


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _class_of(char: str) -> str:
    """All that the anchors have to know of the character before."""
    return char if char in ("", "\n") else "w" if _is_word(char) else "o"
