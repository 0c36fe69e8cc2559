"""The end of a process of ours."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` itself takes longer to import than `holdfast --version` has
if TYPE_CHECKING:
    from typing import NoReturn


def leave(code: int) -> NoReturn:
    """Ends the process at once: to take all modules and records apart first costs a tenth of `holdfast list`.

    What must last was synced when it was written. Where a thread is left, or something cannot be flushed, the
    interpreter ends as it always does, and says so.
    """
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        sys.exit(code)
    # A stream is None where our parent had closed it.
    streams = (sys.stdout, sys.stderr)
    try:
        for stream in filter(None, streams):
            stream.flush()
    except (OSError, ValueError):
        sys.exit(code)
    os._exit(code)
