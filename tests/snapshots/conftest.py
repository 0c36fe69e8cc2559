from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.snapshots.snapshots import WorktreeSnapshots
from kit.snapshots import snapshots_at


@pytest.fixture
def snapshots(repo: Path, tmp_path: Path) -> WorktreeSnapshots:
    return snapshots_at(repo, tmp_path / "private")
