"""Installing from wheel, sdist and checkout: only where `make test-install` sets HOLDFAST_INSTALL."""

from __future__ import annotations

import os

collect_ignore_glob = [] if "HOLDFAST_INSTALL" in os.environ else ["test_*.py"]
