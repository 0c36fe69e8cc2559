"""schemathesis over the OpenAPI document. Only `make test-api`, which sets HOLDFAST_SCHEMATHESIS, runs it."""

from __future__ import annotations

import os

collect_ignore_glob = [] if "HOLDFAST_SCHEMATHESIS" in os.environ else ["test_*.py"]
