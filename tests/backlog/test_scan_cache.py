"""A backlog read with the memory of an earlier process says what a fresh reading says."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.backlog.scan_cache import recall, scan_remembering
from holdfast.backlog.scanner import Scanner


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / "open" / f"{name}.yaml").write_text(text)


def test_a_remembered_backlog_reads_as_a_fresh_one(tmp_path: Path) -> None:
    """Also after files were changed, moved and removed, and with a memory that is damaged or of other rules."""
    memory, old = tmp_path / "memory", 1_000_000_000
    folder = tmp_path / "backlog"
    for name in ("open", "closed"):
        (folder / name).mkdir(parents=True)

    def same(change: Callable[[], object]) -> None:
        change()
        assert scan_remembering(folder, memory) == Scanner(folder).scan()

    write(
        folder,
        **{f"t{number}": f"goal: g{number}\ncontext: [1.5, {{a: b}}]\n" for number in range(80)},
    )
    # The stamp's ctime cannot be set back; what is read young is not remembered.
    same(lambda: None)
    assert not memory.exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.backlog.scanner._RACY_NS", -10_000_000_000)
        same(lambda: None)
        assert len(recall(folder, memory)) == 80
        same(lambda: write(folder, t1="goal: other\n", t2="goal: ["))
        same(lambda: (folder / "open/t3.yaml").rename(folder / "closed/t3.yaml"))
        same((folder / "open/t4.yaml").unlink)
        same(lambda: os.utime((folder / "open/t5.yaml"), (old, old)))
        same(lambda: memory.write_bytes(memory.read_bytes()[:-1]))
        other_rules = memory.read_bytes().replace(b"budget_usd", b"budget_eur", 1)
        memory.write_bytes(other_rules)
        assert recall(folder, memory) == {}
        same(lambda: None)
