"""Whether the extra `mcp` is installed, and what to type where it is not."""

from __future__ import annotations

import importlib.util

MISSING = "The extra `mcp` is not installed here: type `pip install 'holdfast[mcp]'` in the environment of Holdfast."


def is_installed() -> bool:
    """Looks for it without importing it, which takes half a second."""
    return importlib.util.find_spec("mcp") is not None
