"""A public project with its own test suite. Only `make test-project`, which downloads it and sets HOLDFAST_PROJECT,
runs what is here."""

from __future__ import annotations

import os

collect_ignore_glob = [] if "HOLDFAST_PROJECT" in os.environ else ["test_*.py"]
