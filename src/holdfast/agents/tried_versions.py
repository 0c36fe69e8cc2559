"""The versions of the CLIs that were tried with Holdfast: the newest of each that `make test-agents` has run."""

from __future__ import annotations

import re

# As tests/real_agents pins them; a test compares the two.
TRIED = {
    "claude": "2.1.326",
    "codex": "0.169.0",
    "gemini": "0.61.0",
    "opencode": "1.18.33",
    "aider": "0.86.2",
    "mini": "2.4.6",
    "claude-agent-acp": "0.99.1",
}
_NUMBER = re.compile(r"(?<![\w.])v?(\d{1,9}(?:\.\d{1,9}){1,3})(?![\w.])")


def newer_than(program: str, told: str) -> str:
    """The version that was tried, where `told`, what the program says of itself, is newer; else empty."""
    tried, found = TRIED.get(program, ""), _NUMBER.search(told)
    if not tried or found is None:
        return ""
    return tried if _parts(found[1]) > _parts(tried) else ""


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
