from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import errors
from holdfast.layout import DURABILITY, ENTRIES, Layout


def test_every_path_is_named_once_and_says_whether_it_is_durable(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert len(DURABILITY) == len(ENTRIES) == 19
    assert set(DURABILITY.values()) == {"durable", "projection", "ephemeral"}
    assert layout.wal == tmp_path / "runtime" / "wal" and Layout.wal.durability == "durable"
    assert layout.seals == tmp_path / "audit" / "merkle" and Layout.seals.is_folder
    assert layout.idempotency.parent == layout.uncommitted.parent == layout.wal
    assert layout.tasks == tmp_path / "runtime" / "tasks.jsonl" and DURABILITY["runtime/tasks.jsonl"] == "projection"
    assert layout.lock == tmp_path / "runtime" / "lock" and Layout.lock.durability == "ephemeral"
    assert layout.attempt("fix-42.1") == tmp_path / "attempts" / "fix-42.1"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", ".", "..", "/etc/passwd", "a/../../b", "a\0b", "a//b", "a/", "\ud800", "./a"])
def test_a_name_that_climbs_is_refused(tmp_path: Path, name: str) -> None:
    for parts in ([name], ["attempts", name], [name, "x"]):
        with pytest.raises(errors.PathEscapes, match="leads out of"):
            Layout(tmp_path).inside(*parts)
    with pytest.raises(errors.InputError):
        Layout(tmp_path).attempt(name)


def test_a_symlink_out_of_the_root_is_refused_and_one_within_is_not(tmp_path: Path) -> None:
    for name in ("outside", "real/kept"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "root").symlink_to("real")
    (tmp_path / "real" / "out").symlink_to("../outside")
    (tmp_path / "real" / "far").symlink_to("/")
    (tmp_path / "real" / "in").symlink_to("kept")
    (tmp_path / "real" / "loop").symlink_to("loop")
    layout = Layout(tmp_path / "root")
    for name in ("out", "out/x", "far", "far/etc", "in/../out"):
        with pytest.raises(errors.PathEscapes):
            layout.inside(name)
    for name in ("in", "in/x", "kept", "new/er", "loop"):
        assert layout.inside(name) == tmp_path / "root" / name


PIECES = st.sampled_from(["a", ".", "..", "/", "\\", "~", "\0", " ", "out", "in", "é", "\udcff", "\ud800"])
NAMES = st.lists(PIECES, max_size=6).map("".join) | st.text(max_size=6)


@settings(max_examples=400, deadline=None)
@given(st.lists(NAMES, max_size=3))
def test_no_input_gets_out(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    base = tmp_path_factory.getbasetemp() / "escape"
    if not base.exists():
        (base / "root" / "in").mkdir(parents=True)
        (base / "root" / "out").symlink_to("..")
    try:
        path = Layout(base / "root").inside(*parts)
    except errors.PathEscapes:
        return
    assert path != base / "root" and path.is_relative_to(base / "root") and ".." not in path.parts
    assert Path(os.path.realpath(path)).is_relative_to(os.path.realpath(base / "root"))
