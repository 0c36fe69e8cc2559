from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import errors
from holdfast.layout import (
    ATTEMPT_ENTRIES,
    DURABILITY,
    ENTRIES,
    FOLDERS,
    SLUG_LENGTH_MAX,
    Attempt,
    Layout,
    locate,
    slug,
    unslug,
)
from kit.disks import examples


def test_every_path_is_named_once_and_says_whether_it_is_durable(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert len(DURABILITY) == len(ENTRIES) == 49
    assert len({entry.relative for entry in ATTEMPT_ENTRIES}) == len(ATTEMPT_ENTRIES) == 25
    assert set(DURABILITY.values()) == {"durable", "projection", "ephemeral"}
    assert layout.wal == tmp_path / "runtime" / "wal" and Layout.wal.durability == "durable"
    assert layout.seals == tmp_path / "audit" / "merkle" and Layout.seals.is_folder
    assert layout.idempotency.parent == layout.uncommitted.parent == layout.wal
    assert layout.tasks == tmp_path / "runtime" / "tasks.jsonl" and DURABILITY["runtime/tasks.jsonl"] == "projection"
    assert layout.lock == tmp_path / "runtime" / "lock" and Layout.lock.durability == "ephemeral"
    assert layout.attempt("fix-42.1") == tmp_path / "attempts" / "fix-42.1"
    assert layout.worktree("fix-42") == tmp_path / "worktrees" / "fix-42"
    files = layout.attempt_files("fix-42.1")
    assert files.alive == layout.attempts / "fix-42.1" / "alive.lock" and files.start(2).name == "start-2"
    assert Attempt.state.durability == "projection" and Attempt.turns.durability == "durable"
    assert list(tmp_path.iterdir()) == []


LISTING = """
    format.json config/settings.yaml config/triggers.yaml config/mcp_servers.yaml config/prompt.md backlog/open/
    backlog/claimed/
    backlog/closed/ backlog/failed/ backlog/issues/ attempts/ cas/ snapshots.git/
    audit/ audit/merkle/ metrics/tasks.jsonl
    metrics/snapshots.jsonl metrics/position.json sessions.jsonl runtime/wal/ runtime/wal/archive/
    runtime/wal/idempotency.jsonl runtime/wal/uncommitted.idx.json runtime/tasks.jsonl runtime/lock
    runtime/backlog.lock runtime/objects-read runtime/secret/ runtime/secret/server.json runtime/secret/server.key
    runtime/secret/decisions.sock runtime/server.port runtime/secret/open.html runtime/root.json
    runtime/traces.json runtime/told.json runtime/cursors/ runtime/agent-secrets/ runtime/signals/ runtime/logs/
    worktrees/ quarantine/ memory/ plans/ cache/
"""


def test_the_listing_of_the_design_is_whole_and_each_folder_stands_in_one_that_is_made() -> None:
    parents = {"config/", "backlog/", "metrics/", "runtime/"}
    assert set(LISTING.split()) | parents == set(DURABILITY)
    assert {name for name in DURABILITY if DURABILITY[name] == "projection"} == {
        "metrics/",
        "metrics/tasks.jsonl",
        "metrics/snapshots.jsonl",
        "metrics/position.json",
        "sessions.jsonl",
        "runtime/tasks.jsonl",
        "runtime/wal/idempotency.jsonl",
        "runtime/wal/uncommitted.idx.json",
    }
    made = {entry.relative for entry in FOLDERS}
    assert all(os.path.dirname(name.rstrip("/")) + "/" in made | {"/", "runtime/secret/"} for name in DURABILITY)
    assert {"memory/", "plans/", "cache/", "runtime/secret/"}.isdisjoint(made)


@pytest.mark.parametrize("name", ["", ".", "..", "/etc/passwd", "a/../../b", "a\0b", "a//b", "a/", "\ud800", "./a"])
def test_a_name_that_climbs_is_refused(tmp_path: Path, name: str) -> None:
    for parts in ([name], ["attempts", name], [name, "x"]):
        with pytest.raises(errors.PathEscapes, match="leads out of"):
            Layout(tmp_path).inside(*parts)
    for ask in (Layout(tmp_path).attempt, Layout(tmp_path).attempt_files, Layout(tmp_path).worktree):
        with pytest.raises(errors.InputError):
            ask(name)


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


@settings(max_examples=examples(400), deadline=None)
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


# -- where the root is ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("option", "home", "configured"), list(itertools.product([False, True], repeat=3)))
@pytest.mark.parametrize("others", [False, True])
def test_the_first_source_that_names_a_root_wins(option: bool, home: bool, configured: bool, others: bool) -> None:
    """The default is always there; `others` adds variables that must not matter."""
    environ = {"HOLDFAST_HOME": "/home"} if home else {}
    if others:
        environ |= {"HOME": "/h", "HOLDFAST_DATA_ROOT": "/x", "PWD": "/y"}
    found = locate(
        Path("/src/App"),
        option="/option" if option else None,
        environ=environ,
        configured="/configured" if configured else None,
    ).root
    shared = "/option" if option else "/home" if home else "/configured" if configured else None
    assert found == (Path(shared, "+src+_app") if shared else Path("/src/App/.sdd"))


def test_a_data_root_is_absolute_or_below_home_or_written_beside_the_repository() -> None:
    repo, name = Path("/src/app"), "+src+app"
    assert locate(repo, configured="../state").root == Path("/src/app/../state", name)
    assert locate(repo, configured="~/state", environ={"HOME": "/h"}).root == Path("/h/state", name)
    assert locate(repo, option="~/s", environ={"HOME": "/h"}).root == Path("/h/s", name)
    assert locate(repo, environ={"HOLDFAST_HOME": "~/s", "HOME": "/h"}).root == Path("/h/s", name)
    assert locate(repo, environ={"HOLDFAST_HOME": ""}).root == Path("/src/app/.sdd")
    for sources, place in (
        ({"option": "state"}, "--data-root"),
        ({"option": ""}, "--data-root"),
        ({"option": "/a\0b"}, "--data-root"),
        ({"option": "~/s"}, "--data-root"),
        ({"environ": {"HOLDFAST_HOME": "state"}}, "HOLDFAST_HOME"),
        ({"configured": ""}, "data_root"),
    ):
        with pytest.raises(errors.InvalidName, match=f"The data root of {place} .* absolute path"):
            locate(repo, **sources)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidName, match="The repository 'app'"):
        locate(Path("app"))


# -- slugs ------------------------------------------------------------------------------------------------------------

TRICKY = st.lists(
    st.sampled_from([*"aAbB_-.+=~/0", "=2e", "__", "é", "É", "ß", "İ", "\0", "\udcff", "\ud83d", "\ude00"])
)
TEXTS = TRICKY.map("".join) | st.text(max_size=80) | st.integers(150, 260).flatmap(lambda n: st.just("a" * n))


@pytest.mark.fuzz
@given(TEXTS, TEXTS)
def test_different_names_have_different_slugs_also_where_case_does_not_count(one: str, other: str) -> None:
    assert (slug(one).casefold() == slug(other).casefold()) == (one == other)


@pytest.mark.fuzz
@given(TEXTS)
def test_a_slug_is_one_safe_short_name_that_can_be_undone(name: str) -> None:
    text = slug(name)
    assert re.fullmatch(r"[a-z0-9_+=][a-z0-9_+=.~-]*", text) and not text.endswith(".")
    assert len(text) <= SLUG_LENGTH_MAX
    if "~" in text:
        assert len(text) == SLUG_LENGTH_MAX
        with pytest.raises(errors.InvalidName):
            unslug(text)
    else:
        assert unslug(text) == name


@pytest.mark.fuzz
@given(st.text("aA_b=2e+.-~/é", max_size=12))
def test_an_invalid_slug_is_refused(text: str) -> None:
    try:
        name = unslug(text)
    except errors.InvalidName:
        return
    assert slug(name) == text


def test_ordinary_names_stay_readable_and_near_ones_apart() -> None:
    assert slug("holdfast") == "holdfast" and slug("api-v2.1") == "api-v2.1"
    assert slug("/home/me/a-b/c") == "+home+me+a-b+c" != slug("/home/me/a/b-c")
    assert slug("MyRepo") == "_my_repo" and slug("my_repo") == "my__repo"
    assert [slug(name) for name in ("", ".", "..", "-x", "a.")] == ["=", "=2e", "=2e=2e", "=2dx", "a=2e"]
    long = "/x" * 120
    assert slug(long) != slug(long + "y") and slug(long)[:100] == slug(long + "y")[:100]
