from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import errors
from holdfast.backlog import folder as backlogs
from holdfast.backlog import scanner as scanning
from holdfast.backlog.folder import Backlog
from holdfast.backlog.scanner import FOLDERS, Scan
from holdfast.backlog.yaml_blocks import with_block, without_blocks
from holdfast.domain.definition import Definition, parse, render
from holdfast.storage.files import disk
from holdfast.testing.recorder import Recorder
from kit.disks import each_disk, each_fault, record, scratch

CLAIM = {"agent": "claude", "attempt": "a.1", "since": 1763240000.25}
ODD_FILES = {
    "plain": "goal: x\n",
    "no line end": "goal: x",
    "crlf": "# first\r\ngoal: 'x'   # why\r\nlabels:   [ a,b ]\r\n",
    "crlf, no line end": "goal: x\r\ntitle: y",
    "old mac": "goal: x\rtitle: y\r",
    "comments": "# one\n\ngoal:    x # two\n\n# three\n   # four\n",
    "unicode": '\ufeffgoal: grüße 😀 \u2028 x\ntitle: "\\u00e9"\n# ünd\n',
    "block of text": "id: b\ngoal: |\n  a\n\n  claim: no\n",
    "kept line ends": "goal: |+\n  a\n\n\n",
    "text without line end": "goal: |\n  a",
    "folded": "title: >-\n  a\n  b\ngoal: >\n  x\n\n # odd comment\n",
    "quoted over lines": 'goal: "a\nerror: not a key\nclaim: neither"\n',
    "document marks": "%YAML 1.1\n---\ngoal: x\n...\n# after\n",
    "indented": "---\n  goal: x\n  labels:\n  - a\n",
    "aliases": "goal: &g x\ntitle: *g\n",
    "odd keys": '? goal\n: x\n"title" : y\n',
    "ends in blanks": "goal: x\n   ",
    "ours nested": "goal: x\ncontext:\n  claim: {a: 1}\n  error: b\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FOLDERS:
        (tmp_path / "backlog" / name).mkdir(parents=True)
    return tmp_path / "backlog"


def put(folder: Path, name: str, text: str | bytes = "goal: x\n") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def told(scan: Scan) -> list[tuple[str, int, tuple[str, ...]]]:
    return [(each.file, each.line, each.tasks) for each in scan.problems]


# -- blocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ODD_FILES.values(), ids=ODD_FILES)
def test_a_block_comes_and_goes_and_every_other_byte_stays(text: str) -> None:
    body = text.encode()
    assert without_blocks(body) == body
    written = body
    for key, block in (("claim", CLAIM), ("error", {"message": "a\nb\r\n\x85: 😀"}), ("result", {}), ("claim", CLAIM)):
        written = with_block(written, key, block)
        made, before = parse(written, "s"), parse(body, "s")
        assert isinstance(made, Definition) and isinstance(before, Definition), made
        assert getattr(made, key) == block and (made.goal, made.title) == (before.goal, before.title)
        assert without_blocks(written) == body
        start = body.removesuffix(b"...\n# after\n")
        assert written.startswith(start)
    assert with_block(written, None, None) == body
    if "\r\n" in text:
        assert written.count(b"\n") == written.count(b"\r\n")


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("claim: {a: 1,\n b: 2} # ours\n# theirs\ngoal: x\n", "# theirs\ngoal: x\n"),
        ("goal: x\nerror: |\n  a\n\n  b\n# theirs\nlabels: []\n", "goal: x\n# theirs\nlabels: []\n"),
        ("goal: x\nclaim:\n  a: 1\nresult:\n  b: [1,\n    2]\ntitle: y", "goal: x\ntitle: y"),
        ("goal: x\nclaim:\n  # inside\n  a: 1\n\n# theirs\n", "goal: x\n\n# theirs\n"),
        ("\ufeffclaim: {}\ngoal: x\n", "\ufeffgoal: x\n"),
        ("goal: x\nresult:", "goal: x"),
        ("goal: x\nclaim:\n- [[1], {a: {b: 2}}]\n- - c\n", "goal: x\n"),
    ],
)
def test_a_block_that_a_person_changed_or_moved_is_found(text: str, body: str) -> None:
    assert without_blocks(text.encode()).decode() == body


LINES = st.lists(
    st.sampled_from(["# note", "", "labels: [a, 'b']", "role:   r  # x", "title: \"y\n  z\"",
                     "context:\n  k: |\n    v\n\n", "paths:\n- p", "model: é😀"]), max_size=6, unique=True
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(codec="utf-8"), max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("aé: #-'\n", max_size=5), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.fuzz
@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_any_file_takes_any_block(lines: list[str], newline: str, ends: bool, block: dict[str, Any]) -> None:
    text = "\n".join(["goal: x", *lines]) + ("\n" if ends else "")
    body = text.replace("\n", newline).encode()
    for key in ("claim", "error"):
        try:
            written = with_block(body, key, block)
        except UnicodeEncodeError:
            return
        made = parse(written, "s")
        assert isinstance(made, Definition) and getattr(made, key) == block
        assert without_blocks(written) == body


# -- reading ----------------------------------------------------------------------------------------------------------


def test_a_scan_finds_every_task_in_its_folder(folder: Path) -> None:
    for name in FOLDERS:
        put(folder, f"{name}/{name}-1.yaml")
    put(folder, "open/other.yml", "id: named\ngoal: y\n")
    put(folder, "open/README.md", "no task")
    put(folder, "open/.hidden.yaml", "no: task")
    scan = Backlog(folder).scan()
    assert {task: found.folder for task, found in scan.tasks.items()} == {
        **{f"{name}-1": name for name in FOLDERS}, "named": "open",
    }  # fmt: skip
    assert scan.problems == () and scan.moved == {}


def test_a_missing_folder_is_an_empty_one(tmp_path: Path) -> None:
    assert Backlog(tmp_path / "none").scan() == Scan({}, {}, ())


def test_a_broken_file_is_reported_stays_and_stops_no_other(folder: Path) -> None:
    texts = {"bad": b"goal: [\n", "dup": b"goal: x\ngoal: y\n", "bin": b"\xff", "id": b"id: real\ngoal: {\n",
             "typo": b"goal: x\nrole: r\nlables: []\n"}  # fmt: skip
    for name, text in texts.items():
        put(folder, f"open/{name}.yaml", text)
    put(folder, "open/good.yaml")
    put(folder, "open/waits.yaml", "goal: x\ndepends_on:\n- good\n- bad\n")
    scan = Backlog(folder).scan()
    assert set(scan.tasks) == {"good", "waits"}
    assert told(scan) == [
        ("open/bad.yaml", 2, ("bad",)),
        ("open/bin.yaml", 1, ("bin",)),
        ("open/dup.yaml", 2, ("dup",)),
        ("open/id.yaml", 3, ("real", "id")),
        ("open/typo.yaml", 3, ("typo",)),
        ("open/waits.yaml", 4, ("waits",)),
    ]
    assert "whose own file cannot be used" in scan.problems[-1].message
    assert all((folder / f"open/{name}.yaml").read_bytes() == text for name, text in texts.items())


def test_a_problem_between_files_names_a_line(folder: Path) -> None:
    put(folder, "open/a.yaml", "goal: x\n\ndepends_on: [b]\n")
    put(folder, "open/b.yaml", "goal: x\ndepends_on: [a, gone]\n")
    put(folder, "open/c.yaml", "goal: x\nparent: gone\n")
    put(folder, "open/d1.yaml", "goal: x\nid: d\n")
    put(folder, "open/d2.yaml", "goal: x\n\nid: d\n")
    scan = Backlog(folder).scan()
    assert set(scan.tasks) == {"a", "b", "c"}
    assert sorted(told(scan)) == [
        ("open/a.yaml", 3, ("a", "b")), ("open/b.yaml", 2, ("b",)), ("open/c.yaml", 2, ("c",)),
        ("open/d1.yaml", 2, ("d",)), ("open/d2.yaml", 3, ("d",)),
    ]  # fmt: skip


def test_links_pipes_and_folders_are_reported_and_not_followed(folder: Path, tmp_path_factory: Any) -> None:
    outside = tmp_path_factory.mktemp("outside")
    put(outside, "secret.yaml", "goal: secret\n")
    (folder / "open/link.yaml").symlink_to(outside / "secret.yaml")
    (folder / "open/dangling.yaml").symlink_to(outside / "none")
    (folder / "open/dir.yaml").mkdir()
    os.mkfifo(folder / "open/pipe.yaml")
    (folder / "failed").rmdir()
    (folder / "failed").symlink_to(outside)
    put(folder, "open/good.yaml")
    backlog = Backlog(folder)
    scan = backlog.scan()
    assert set(scan.tasks) == {"good"}
    assert {each.file for each in scan.problems} == {
        "open/link.yaml", "open/dangling.yaml", "open/dir.yaml", "open/pipe.yaml", "failed",
    }  # fmt: skip
    with pytest.raises(errors.PathEscapes):
        backlog.move("good", "failed", {})
    with pytest.raises(errors.PathEscapes):
        backlog.add(b"goal: x", "new", "failed")
    assert [path.name for path in outside.iterdir()] == ["secret.yaml"]


def test_a_file_that_may_not_be_read_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder, "open/a.yaml")
    put(folder, "open/b.yaml")
    real = scanning.read_plain

    def refuse(path: Path) -> Any:
        if path.name == "a.yaml":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(scanning, "read_plain", refuse)
    scan = Backlog(folder).scan()
    assert set(scan.tasks) == {"b"} and told(scan) == [("open/a.yaml", 1, ("a",))]


def test_a_file_name_that_is_no_text_is_reported_in_text(folder: Path) -> None:
    (folder / os.fsdecode(b"open/\xff.yaml")).write_bytes(b"goal: x")
    (folder / os.fsdecode(b"open/\xfe.yaml")).write_bytes(b"goal: x\nid: a\nparent: gone")
    scan = Backlog(folder).scan()
    assert told(scan) == [("open/\ufffd.yaml", 1, ("\ufffd",)), ("open/\ufffd.yaml", 3, ("a",))]
    assert msgspec.json.encode(scan.problems)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    real, names = scanning.read_plain, []

    def counted(path: Path) -> Any:
        names.append(path.name)
        return real(path)

    monkeypatch.setattr(scanning, "read_plain", counted)
    return names


def let_time_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    later_ns = time.time_ns() + 10_000_000_000
    monkeypatch.setattr(scanning.time, "time_ns", lambda: later_ns)


def test_unchanged_files_cost_a_stat(folder: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        put(folder, f"open/t{number}.yaml")
    put(folder, "open/bad.yaml", "goal: [")
    let_time_pass(monkeypatch)
    backlog = Backlog(folder)
    first = backlog.scan()
    assert len(reads) == 21
    reads.clear()
    assert backlog.scan() is first and reads == []
    put(folder, "open/t3.yaml", "goal: y\n")
    put(folder, "open/new.yaml")
    (folder / "open/t4.yaml").unlink()
    again = backlog.scan()
    assert sorted(reads) == ["new.yaml", "t3.yaml"]
    assert again.tasks["t3"].definition.goal == "y" and "new" in again.tasks and "t4" not in again.tasks


def test_a_change_within_the_clock_s_tick_is_seen(folder: Path, reads: list[str]) -> None:
    path = put(folder, "open/a.yaml", "goal: one\n")
    backlog = Backlog(folder)
    assert backlog.scan().tasks["a"].definition.goal == "one"
    before = path.stat()
    seen = backlog._scanner._seen
    with path.open("r+b") as file:
        file.write(b"goal: two\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    # As on a filesystem whose clock did not tick: the whole stamp is what it was.
    stamp = scanning.stamp_of(path.stat())
    seen["open/a.yaml"] = msgspec.structs.replace(seen["open/a.yaml"], stamp=stamp)
    assert backlog.scan().tasks["a"].definition.goal == "two"


# -- writing ----------------------------------------------------------------------------------------------------------


def test_add_creates_and_never_overwrites(folder: Path) -> None:
    backlog = Backlog(folder)
    added = backlog.add(render(Definition("a", goal="do\nit\n", depends_on=("b",))), "a")
    assert added.path == folder / "open/a.yaml" and backlog.read("a")[0].definition == added.definition
    backlog.add(b"# mine\nid: b\ngoal: x", "file-name")
    assert (folder / "open/file-name.yaml").read_bytes() == b"# mine\nid: b\ngoal: x"
    backlog.move("a", "closed", {"commit": "1"})
    before = {path: path.read_bytes() for path in folder.rglob("*.yaml")}
    with pytest.raises(errors.TaskExists):
        backlog.add(b"goal: other", "a")
    with pytest.raises(errors.TaskExists):
        backlog.add(b"goal: other", "b")
    with pytest.raises(errors.AlreadyExists):
        backlog.add(b"id: c\ngoal: other", "file-name")
    for text, name in ((b"goal: [", "c"), (b"id: ../x\ngoal: x", "c")):
        with pytest.raises(errors.DefinitionInvalid):
            backlog.add(text, name)
    for name in ("../up", "a/b", "", ".x", "a.lock"):
        with pytest.raises(errors.InvalidName):
            backlog.add(b"id: c\ngoal: x", name)
    with pytest.raises(errors.InvalidName):
        backlog.add(b"goal: x", "c", "../elsewhere")
    assert {path: path.read_bytes() for path in folder.rglob("*.yaml")} == before


def test_edit_counts_only_against_what_was_read(folder: Path) -> None:
    path = put(folder, "open/a.yaml", "goal: x\n")
    backlog = Backlog(folder)
    found, _ = backlog.read("a")
    edited = backlog.edit("a", b"goal: y # now\n", found.digest)
    assert path.read_bytes() == b"goal: y # now\n" and edited.definition.goal == "y"
    with pytest.raises(errors.TaskFileChanged):
        backlog.edit("a", b"goal: z\n", found.digest)
    with pytest.raises(errors.InputError):
        backlog.edit("a", b"goal: z\nid: b\n", edited.digest)
    with pytest.raises(errors.DefinitionInvalid):
        backlog.edit("a", b"goal: [\n", edited.digest)
    with pytest.raises(errors.TaskFileMissing):
        backlog.edit("gone", b"goal: z\n", edited.digest)
    assert path.read_bytes() == b"goal: y # now\n"


def test_writers_wait_for_each_other_and_not_for_ever(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backlog = Backlog(folder)
    backlog.add(b"goal: x\n", "a")
    monkeypatch.setattr(backlogs, "LOCK_WAIT_S_MAX", 0.05)
    digest = backlog.read("a")[0].digest
    acts: list[Callable[[], object]] = [
        lambda: backlog.add(b"goal: y\n", "b"),
        lambda: backlog.edit("a", b"goal: z\n", digest),
        lambda: backlog.move("a", "closed"),
        lambda: backlog.settle("a", "open"),
    ]
    with (folder.parent / "runtime" / "backlog.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for act in acts:
            with pytest.raises(errors.BacklogBusy, match=r"holds .*/runtime/backlog.lock. No file was written"):
                act()
        assert [path.name for path in folder.glob("*/*")] == ["a.yaml"]
    for act in acts[:2]:
        act()
    assert backlog.read("a")[1] == b"goal: z\n"


def test_edit_keeps_our_block(folder: Path) -> None:
    put(folder, "open/a.yaml")
    backlog = Backlog(folder)
    claimed = backlog.move("a", "claimed", CLAIM)
    edited = backlog.edit("a", b"goal: y\n", claimed.digest)
    assert edited.definition.claim == CLAIM and edited.definition.goal == "y"
    forged = backlog.edit("a", b"goal: z\nclaim: {agent: me}\nresult: {}\n", edited.digest)
    assert forged.definition.claim == CLAIM and forged.definition.result is None
    assert without_blocks(forged.path.read_bytes()) == b"goal: z\n"


@pytest.mark.parametrize("text", ODD_FILES.values(), ids=ODD_FILES)
def test_a_task_s_whole_way_leaves_the_person_s_bytes_alone(folder: Path, text: str) -> None:
    body = text.encode()
    put(folder, "open/odd.name.yaml", body).chmod(0o600)
    backlog = Backlog(folder)
    (task,) = backlog.scan().tasks
    for to, block in (("claimed", CLAIM), ("open", None), ("claimed", CLAIM), ("claimed", {**CLAIM, "attempt": "a.2"}),
                      ("failed", {"message": "no\nway"}), ("open", None), ("closed", {"commit": "abc"})):  # fmt: skip
        found = backlog.move(task, to, block)
        assert found == backlog.scan().tasks[task] and found.folder == to
        assert found.path == folder / to / "odd.name.yaml" and found.path.stat().st_mode & 0o777 == 0o600
        assert len(list(folder.rglob("*.y*ml"))) == 1
        assert without_blocks(found.path.read_bytes()) == body
        assert (found.definition.claim, found.definition.error, found.definition.result) == tuple(
            block if to == folder_of else None for folder_of in ("claimed", "failed", "closed")
        )
    backlog.move(task, "open")
    assert (folder / "open/odd.name.yaml").read_bytes() == body


def test_a_move_never_overwrites_another_task_s_file(folder: Path) -> None:
    put(folder, "open/same.yaml", "id: a\ngoal: x\n")
    put(folder, "closed/same.yaml", "id: b\ngoal: y\n")
    backlog = Backlog(folder)
    assert backlog.move("a", "closed", {}).path == folder / "closed/a.yaml"
    assert set(backlog.scan().tasks) == {"a", "b"}
    put(folder, "open/c-file.yaml", "id: c\ngoal: x\n")
    put(folder, "closed/c-file.yaml", "goal: [")
    put(folder, "closed/c.yaml", "goal: [")
    with pytest.raises(errors.AlreadyExists):
        backlog.move("c", "closed", {})
    assert (folder / "open/c-file.yaml").exists() and (folder / "closed/c.yaml").read_bytes() == b"goal: ["


def test_a_block_that_would_change_the_rest_is_refused(folder: Path) -> None:
    path = put(folder, "claimed/a.yaml", "claim: {who: &w x}\ngoal: *w\n")
    with pytest.raises(errors.BlockUnfit):
        Backlog(folder).move("a", "open")
    assert path.exists() and not (folder / "open/a.yaml").exists()


def test_a_file_saved_during_a_move_is_kept_where_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(folder, "open/a.yaml", "goal: x\n")
    backlog = Backlog(folder)
    real = backlog._remove

    def save_first(*given: Any) -> None:
        path.write_bytes(b"goal: newer\n")
        real(*given)

    monkeypatch.setattr(backlog, "_remove", save_first)
    with pytest.raises(errors.TaskFileChanged):
        backlog.move("a", "claimed", CLAIM)
    assert backlog.scan().tasks["a"].definition.goal == "newer" and backlog.scan().moved == {}


def test_a_pair_that_a_crash_left_is_no_duplicate_and_is_settled(folder: Path) -> None:
    for keep in ("open", "claimed"):
        put(folder, "open/a.yaml", "goal: x")
        put(folder, "claimed/a.yaml", with_block(b"goal: x", "claim", CLAIM))
        put(folder, "open/b.yaml", "goal: x\ndepends_on: [a]\n")
        backlog = Backlog(folder)
        scan = backlog.scan()
        assert set(scan.tasks) == {"b"} and scan.problems == ()
        assert [found.folder for found in scan.moved["a"]] == ["open", "claimed"]
        with pytest.raises(errors.InputError):
            backlog.edit("a", b"goal: y", scan.moved["a"][0].digest)
        with pytest.raises(errors.TaskFileMissing):
            backlog.settle("a", "closed")
        content = (folder / keep / "a.yaml").read_bytes()
        assert backlog.settle("a", keep).folder == keep
        assert backlog.scan().tasks["a"].folder == keep and backlog.scan().moved == {}
        assert (folder / keep / "a.yaml").read_bytes() == content


def test_files_that_differ_are_duplicates_and_nobody_s_to_choose(folder: Path) -> None:
    put(folder, "open/a.yaml", "goal: x\n")
    put(folder, "claimed/a.yaml", "goal: y\nclaim: {}\n")
    put(folder, "open/b1.yaml", "goal: x\nid: b\n")
    put(folder, "open/b2.yaml", "goal: x\nid: b\n")
    backlog = Backlog(folder)
    scan = backlog.scan()
    assert scan.moved == {} and scan.tasks == {} and len(scan.problems) == 4
    for task in ("a", "b"):
        for act in (
            lambda: backlog.settle(task, "open"),
            lambda: backlog.move(task, "closed"),
            lambda: backlog.read(task),
        ):
            with pytest.raises(errors.TaskFilesDiffer):
                act()
    assert len(list(folder.rglob("*.yaml"))) == 4


@pytest.mark.parametrize("task", ["../a", "a/b", "", "a.lock", "..", "/etc/passwd", "a\0"])
def test_no_id_leads_out(folder: Path, task: str) -> None:
    backlog = Backlog(folder)
    for act in (backlog.read, lambda task: backlog.move(task, "closed"), lambda task: backlog.settle(task, "open")):
        with pytest.raises(errors.InvalidName):
            act(task)


# -- crashes ----------------------------------------------------------------------------------------------------------

BODY = b"# by hand\r\ngoal: 'x'  # why\r\ntitle: |\r\n  t"
EDITED = b"goal: edited\n# end"
OTHER = b"goal: other\n"


def life(recorder: Recorder) -> None:
    """A task's way through the folders; each mark is (folder, body) as acknowledged."""
    backlog = Backlog(recorder.root / "backlog")
    backlog.add(OTHER, "other")
    backlog.add(BODY, "a")
    recorder.mark(("open", BODY))
    backlog.move("a", "claimed", CLAIM)
    recorder.mark(("claimed", BODY))
    backlog.move("a", "claimed", {**CLAIM, "attempt": "a.2"})
    recorder.mark(("claimed", BODY))
    backlog.edit("a", EDITED, backlog.read("a")[0].digest)
    recorder.mark(("claimed", EDITED))
    backlog.move("a", "failed", {"message": "no"})
    recorder.mark(("failed", EDITED))
    backlog.move("a", "open")
    recorder.mark(("open", EDITED))


def held(root: Path) -> dict[str, set[tuple[str, bytes]]]:
    """Which bodies each task has, and where; every file that is there can be used."""
    scan = Backlog(root / "backlog").scan()
    assert scan.problems == ()
    copies = {task: (found,) for task, found in scan.tasks.items()} | scan.moved
    return {
        task: {(each.folder, without_blocks(each.path.read_bytes())) for each in found}
        for task, found in copies.items()
    }


STEPS = [
    ("open", BODY),
    ("claimed", BODY),
    ("claimed", BODY),
    ("claimed", EDITED),
    ("failed", EDITED),
    ("open", EDITED),
]


def test_a_power_cut_loses_no_definition() -> None:
    pairs = count = 0
    with scratch() as root:
        recorder = record(root, life)
        for acknowledged, disk_root in each_disk(recorder):
            count += 1
            found = held(disk_root)
            if not acknowledged:
                assert found.get("a", {("open", BODY)}) == {("open", BODY)}
                continue
            assert found["other"] == {("open", OTHER)}
            now = len(acknowledged)
            allowed = {acknowledged[-1], *STEPS[now : now + 1]}
            assert found["a"] and found["a"] <= allowed, found
            if len(found["a"]) == 2:
                pairs += 1
                check_settling(disk_root, found["a"])
    assert pairs > 0 and count > 30


def check_settling(root: Path, copies: set[tuple[str, bytes]]) -> None:
    """Either copy can be kept, also when the power fails again meanwhile; a repeated move settles as well."""
    wanted = sorted(copies)[0]

    def settle(recorder: Recorder) -> None:
        Backlog(recorder.root / "backlog").settle("a", wanted[0])
        recorder.mark("settled")

    recorder = record(root, settle)
    for acknowledged, disk_root in each_disk(recorder):
        assert wanted in held(disk_root)["a"]
        if acknowledged:
            assert held(disk_root)["a"] == {wanted}
        else:
            Backlog(disk_root / "backlog").move("a", "closed", {"again": True})
            assert held(disk_root)["a"] == {("closed", wanted[1])}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failing_disk_loses_no_definition(code: int) -> None:
    raised = 0
    for recorder, error in each_fault(life, code):
        raised += isinstance(error, errors.DiskError)
        if not recorder.marks:
            continue
        found = held(recorder.root)
        now = len(recorder.marks)
        assert found["other"] == {("open", OTHER)}
        assert found["a"] and found["a"] <= {recorder.marks[-1][1], *STEPS[now : now + 1]}
    assert raised > 20


@pytest.mark.parametrize("keep", ["open", "claimed"])
def test_settling_what_was_seen_but_not_yet_durable_loses_nothing(keep: str) -> None:
    """The move stops before its last syncs, as if killed; the power fails only after the next process settled it."""

    def program(recorder: Recorder) -> None:
        folder = recorder.root / "backlog"
        Backlog(folder).add(BODY, "a")
        recorder.mark("added")
        try:
            Backlog(folder).move("a", "claimed", CLAIM)
        except errors.DiskError:
            if Backlog(folder).scan().moved:
                Backlog(folder).settle("a", keep)
                recorder.mark("settled")

    settled = 0
    for recorder, _ in each_fault(program, errno.EIO):
        if "settled" not in recorder.marked_before(len(recorder.calls)):
            continue
        settled += 1
        for acknowledged, disk_root in each_disk(recorder):
            if acknowledged:
                assert {body for _, body in held(disk_root)["a"]} == {BODY}
            if "settled" in acknowledged:
                assert held(disk_root)["a"] == {(keep, BODY)}
    assert settled > 0


# -- somebody quicker -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theirs", [None, b"goal: theirs\n"], ids=["taken away", "written anew"])
def test_a_file_that_somebody_changes_as_soon_as_it_is_written_is_not_taken_for_ours(
    folder: Path, monkeypatch: pytest.MonkeyPatch, theirs: bytes | None
) -> None:
    publish = disk.Batch.publish

    def quicker(batch: disk.Batch) -> None:
        publish(batch)
        path = folder / "open/t.yaml"
        if theirs is None:
            path.unlink()
        else:
            path.write_bytes(theirs)

    monkeypatch.setattr(disk.Batch, "publish", quicker)
    backlog = Backlog(folder)
    made = backlog.add_many({"t": b"goal: ours\n", "u": b"goal: ours\n"})
    assert set(made) == {"t", "u"}
    assert not backlog.is_own(made["t"].path)
    assert backlog.is_own(made["u"].path)
    assert set(backlog.scan().tasks) == ({"t", "u"} if theirs else {"u"})
