"""Finds the changed paths that a task's `paths` rules do not allow, and those that no task may change.

Without rules everything is allowed.

A rule is a glob, like a line of `.gitignore`, and allows what it matches and all below it. `*` and `?` stay within one
name, `[a-z]` is one character of it, `**` stands for any folders. A rule without a slash (`*.md`) counts at any depth;
one with a slash, also at its end or its beginning (`src/`, `/Makefile`, `docs/**`), counts from the top. A slash at
the end asks for a folder.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable, Sequence

REPOSITORY_FILE = "holdfast.yaml"
DEFAULT_ROOT = ".sdd"


def outside(changed: Iterable[str], rules: Sequence[str]) -> list[str]:
    """The changed paths that no rule allows, sorted; none where there are no rules."""
    if not rules:
        return []
    patterns = [_pattern(rule) for rule in rules]
    return sorted({path for path in changed if not any(pattern.match(path) for pattern in patterns)})


def is_narrower(rule: str, rules: Sequence[str]) -> bool:
    """Whether a rule allows nothing beyond the others. Where their text does not show that, the answer is no."""
    return any(rule == each or _is_below(rule, each) for each in rules)


def _is_below(rule: str, top: str) -> bool:
    folder = top.removesuffix("**").removeprefix("./").strip("/")
    path = rule.removeprefix("./").lstrip("/")
    is_plain = bool(folder) and not set("*?[\\") & set(folder) and ".." not in path.split("/")
    return is_plain and path.startswith(f"{folder}/") and path.strip("/") != folder


def reserved(changed: Iterable[str], roots: Sequence[str]) -> list[str]:
    """The changed paths that no candidate may change, sorted: where Holdfast looks for its settings and data root.

    A writer there decides what the next run starts, outside of every sandbox. Names count alike whatever their case,
    and with or without characters that nobody sees: some filesystems take them for the same. `roots`: data roots, as
    paths in the repository.
    """
    tops = [_alike(top) for top in (REPOSITORY_FILE, DEFAULT_ROOT, *roots)]
    return sorted({path for path in changed if _is_reserved(_alike(path), tops)})


def _is_reserved(path: str, tops: Sequence[str]) -> bool:
    # A link or a file in place of a folder above leads elsewhere just as well.
    return any(path == top or path.startswith(f"{top}/") or top.startswith(f"{path}/") for top in tops)


def _alike(path: str) -> str:
    seen = "".join(each for each in unicodedata.normalize("NFKC", path) if unicodedata.category(each) != "Cf")
    return seen.casefold()


@functools.lru_cache(maxsize=1000)
def _pattern(rule: str) -> re.Pattern[str]:
    body = rule.removeprefix("./").strip("/")
    anchored = "/" in rule
    head = "" if anchored else "(?:.*/)?"
    tail = "/.+" if rule.endswith("/") else "(?:/.*)?"
    return re.compile(head + _translate(body) + tail + r"\Z", re.DOTALL)


def _translate(glob: str) -> str:
    parts, position = [], 0
    while position < len(glob):
        found = _TOKEN.match(glob, position)
        if found is None:
            parts.append(re.escape(glob[position]))
            position += 1
            continue
        position = found.end()
        token = found[0]
        if token in _WORDS:
            parts.append(_WORDS[token])
        elif token.startswith("["):
            negated = token[1] in "!^"
            body = token[2:-1] if negated else token[1:-1]
            parts.append(f"(?!/)[{'^' if negated else ''}{_CLASS_SPECIAL.sub(_ESCAPED, body)}]")
        elif token.startswith("\\"):
            parts.append(re.escape(token[1]))
    return "".join(parts)


_WORDS = {"/**/": "/(?:.*/)?", "**/": "(?:.*/)?", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_TOKEN = re.compile(r"/\*\*/|\*\*/|/\*\*(?=\Z)|\*\*|\*|\?|\[[!^]?\]?[^\]/]*\]|\\.", re.DOTALL)
_ESCAPED = r"\\\g<0>"
_CLASS_SPECIAL = re.compile(r"[\\\[\]&~|]")
