from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import errors
from holdfast.layout import FOLDERS, Layout
from holdfast.storage.files import disk
from holdfast.storage.journal import data_root
from holdfast.storage.journal.data_root import create_root, open_root, read_format, read_root
from holdfast.testing import powercut
from holdfast.testing.recorder import PowerCut, Recorder
from kit.disks import each_disk, each_fault, examples, record, scratch


def tree(folder: Path) -> dict[str, bytes | str | None]:
    """Everything below a folder: content of files, targets of links, None for folders."""
    found: dict[str, bytes | str | None] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = os.readlink(path) if path.is_symlink() else None if path.is_dir() else path.read_bytes()
    return found


# -- making and opening -----------------------------------------------------------------------------------------------


def test_a_new_root_has_its_folders_and_an_id(tmp_path: Path) -> None:
    layout = create_root(tmp_path / "sdd")
    assert layout == Layout(tmp_path / "sdd")
    assert json.loads(layout.format_file.read_bytes()) == {
        "format": 2,
        "repository": read_format(layout).repository,
        "root_commit": "",
    }
    assert len(read_format(layout).repository) == 32
    expected = {"format.json", *(entry.relative.rstrip("/") for entry in FOLDERS)}
    assert set(tree(layout.root)) == expected
    before = tree(layout.root)
    assert open_root(layout.root) == create_root(layout.root) == read_root(layout.root) == layout
    assert tree(layout.root) == before


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert create_root(Path("sdd")).root == tmp_path / "sdd"


def test_open_restores_folders_and_sweeps_what_a_crash_left_outside_the_worktrees(tmp_path: Path) -> None:
    layout = create_root(tmp_path / "sdd")
    shutil.rmtree(layout.runtime)
    layout.attempts.rmdir()
    dead = ".hf-4194305-1-00000000-0.tmp"
    for folder in (layout.root, layout.cas, layout.worktrees):
        (folder / dead).write_bytes(b"half")
    mine = disk.StagedFile(layout.cas)
    open_root(layout.root)
    assert layout.wal_archive.is_dir() and layout.attempts.is_dir()
    assert set(layout.root.rglob("*.tmp")) == {mine.path, layout.worktrees / dead}


def test_creators_at_once_end_with_one_id(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from holdfast.storage.journal.data_root import create_root, read_format\n"
        "sys.stdin.readline()\n"
        "for n in range(30): print(read_format(create_root(Path(sys.argv[1], str(n)))).repository)"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    racers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    answers = [racer.communicate()[0].split() for racer in racers]
    assert len(set(answers[0])) == len(answers[0]) == 30
    assert answers[0] == answers[1] == answers[2]
    assert not list(tmp_path.rglob("*.tmp"))


# -- bad input: a clear sentence, and nothing changed -----------------------------------------------------------------


def make_file(base: Path) -> Path:
    (base / "sdd").write_bytes(b"not a folder")
    return base / "sdd"


def make_file_above(base: Path) -> Path:
    return make_file(base) / "deeper"


def make_dangling_above(base: Path) -> Path:
    return make_dangling(base) / "deeper" / "sdd"


def make_loop(base: Path) -> Path:
    (base / "a").symlink_to("b")
    (base / "b").symlink_to("a")
    return base / "a"


def make_loop_above(base: Path) -> Path:
    return make_loop(base) / "sdd"


def make_dangling(base: Path) -> Path:
    (base / "sdd").symlink_to("nowhere")
    return base / "sdd"


def make_nul(base: Path) -> Path:
    return base / "s\0dd"


def make_too_long(base: Path) -> Path:
    return base / ("s" * 300) / "sdd"


def make_file_in_a_folders_place(base: Path) -> Path:
    (base / "sdd").mkdir()
    (base / "sdd" / "format.json").write_text('{"format":2,"repository":"r"}')
    (base / "sdd" / "runtime").write_bytes(b"")
    return base / "sdd"


def make_link_in_a_folders_place(base: Path) -> Path:
    (base / "sdd").mkdir()
    (base / "sdd" / "format.json").write_text('{"format":2,"repository":"r"}')
    (base / "sdd" / "cas").symlink_to("nowhere")
    return base / "sdd"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (make_file, "sdd cannot be used: it is not a folder"),
        (
            make_file_above,
            "a part of its path is a file, not a folder",
        ),
        (make_loop, "a loop of symbolic links"),
        (make_loop_above, "a loop of symbolic links"),
        (make_dangling, "a symbolic link to nothing"),
        (make_dangling_above, "does not exist"),
        (make_nul, "a character that no file name can hold"),
        (make_too_long, "File name too long"),
        (make_file_in_a_folders_place, "runtime is not a folder"),
        (make_link_in_a_folders_place, "cas is not a folder"),
    ],
)
@pytest.mark.parametrize("act", [create_root, open_root])
def test_an_unusable_path_is_reported_and_left(tmp_path: Path, make: object, sentence: str, act: object) -> None:
    path = make(tmp_path)  # type: ignore[operator]
    before = tree(tmp_path)
    with pytest.raises(errors.RootUnusable, match=sentence) as told:
        act(path)  # type: ignore[operator]
    assert "Nothing was changed" in str(told.value) and told.value.exit_code == 2
    assert tree(tmp_path) == before


def test_missing_parents_are_made_with_a_new_root_and_never_opened(tmp_path: Path) -> None:
    path = tmp_path / "no" / "such" / "sdd"
    with pytest.raises(errors.RootUnusable, match=r"the folder \S+/such does not exist"):
        open_root(path)
    with scratch() as elsewhere:
        calls = record(elsewhere, lambda _: create_root(elsewhere / "no" / "such" / "sdd")).calls
    recorder = Recorder(tmp_path)
    recorder.fail_at(next(number for number, call in enumerate(calls) if call.kind == "create"), errno.EACCES)
    with disk.use_kernel(recorder), pytest.raises(errors.RootUnusable, match="Permission denied"):
        create_root(path)
    assert recorder.fired and tree(tmp_path) == {}, "what was made is taken back"
    assert create_root(path).format_file.exists()


def test_a_root_that_lost_its_format_file_says_so_and_init_writes_a_new_one(tmp_path: Path) -> None:
    layout = create_root(tmp_path / "sdd")
    layout.format_file.unlink()
    with pytest.raises(errors.RootUnusable, match="not a data root"):
        open_root(layout.root)
    (layout.wal / "000001-20261115T120000Z.wal.jsonl").write_bytes(b"")
    before = tree(layout.root)
    for act in (open_root, read_root):
        with pytest.raises(errors.FormatMissing, match=r"format\.json is missing, though \S+/wal holds a journal"):
            act(layout.root)
    assert tree(layout.root) == before
    create_root(layout.root)
    assert tree(layout.root) == {**before, "format.json": layout.format_file.read_bytes()}


def test_a_folder_of_open_tasks_that_is_missing_beside_a_journal_is_not_made_anew(tmp_path: Path) -> None:
    layout = create_root(tmp_path / "sdd")
    layout.backlog_open.rmdir()
    assert open_root(layout.root).backlog_open.is_dir()
    layout.backlog_open.rmdir()
    (layout.wal / "000001-20261115T120000Z.wal.jsonl").write_bytes(b"")
    assert not open_root(layout.root).backlog_open.exists()


def test_a_folder_that_is_no_data_root_is_not_opened(tmp_path: Path) -> None:
    for act in (open_root, read_root):
        with pytest.raises(errors.RootUnusable, match="it is not a data root; `holdfast init` makes one"):
            act(tmp_path)
        with pytest.raises(errors.RootUnusable, match="it does not exist"):
            act(tmp_path / "missing")
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\0" * 60,
        b"[]",
        b"{}",
        b'{"format":"1","repository":"r"}',
        b'{"format":2}',
        b'{"format":2,"repository":7}',
        b'{"format":2,"repository":""}',
        b'{"format":2,"repository":"../r"}',
        b'{"format":0,"repository":"r"}',
        b'{"format":-3,"repository":"r"}',
        b'{"format":2,"repository":"\xff"}',
        b'{"format":2,"repository":"r","root_commit":"main"}',
        b'{"format":2,"repository":"r","root_commit":1}',
        None,
    ],
)
def test_a_broken_format_file_is_named_and_left(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "format.json"
    path.mkdir() if content is None else path.write_bytes(content)
    before = tree(tmp_path)
    for act in (create_root, open_root, read_root):
        with pytest.raises(errors.FormatBroken, match=r"format\.json cannot be read: .*Nothing was changed"):
            act(tmp_path)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("content", ['{"format":3,"repository":"r"}', '{"format":9000,"repo":{"id":1}}'])
def test_a_newer_format_is_left_alone(tmp_path: Path, content: str) -> None:
    (tmp_path / "format.json").write_text(content)
    for act in (create_root, open_root, read_root):
        with pytest.raises(errors.NewerFormat, match=r"format\.json was written in format \d+, .* up to format 2"):
            act(tmp_path)
    assert tree(tmp_path) == {"format.json": content.encode()}


@settings(max_examples=examples(200), deadline=None)
@given(
    st.binary(max_size=80) | st.from_regex(rb'\{"format":-?[0-9e.]{0,30},"repository":"[ -~]{0,9}"\}', fullmatch=True)
)
def test_any_content_of_the_format_file_is_an_id_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    folder = tmp_path_factory.getbasetemp() / "format"
    folder.mkdir(exist_ok=True)
    (folder / "format.json").write_bytes(content)
    try:
        read_root(folder)
    except (errors.FormatBroken, errors.NewerFormat):
        return
    assert json.loads(content)["format"] in range(1, data_root.FORMAT + 1)


def in_mount(tmp_path: Path, options: str, prepare: str) -> str:
    """Tries create_root and open_root on a real filesystem of its own, in a private mount namespace."""
    script = """if True:
        import os, subprocess, sys
        from pathlib import Path
        from holdfast import errors
        from holdfast.storage.journal.data_root import create_root, open_root
        base = Path(sys.argv[1])
        def names(): return sorted(str(path) for path in base.rglob("*"))
        create_root(base / "old")
        exec(sys.argv[2])
        before = names()
        for act, path in [(create_root, base / "new"), (create_root, base / "old"), (open_root, base / "old")]:
            try:
                print("made", act(path))
            except errors.HoldfastError as error:
                print(type(error).__name__, error.exit_code, error)
        assert names() == before, set(names()) ^ set(before)
        """
    shell = 'mount -t tmpfs -o "$1" none "$2" && shift 2 && exec "$@"'
    command = ["unshare", "-rm", "sh", "-c", shell, "sh", options, str(tmp_path), sys.executable, "-c", script]
    done = subprocess.run([*command, str(tmp_path), prepare], capture_output=True, text=True, check=False)
    if done.returncode != 0 and "Traceback" not in done.stderr:
        pytest.skip(f"no private mounts here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_read_only_filesystem_is_reported_and_left(tmp_path: Path) -> None:
    """Real, and it binds the superuser too. The simulated refusal below runs where mounts are not allowed."""
    remount = "subprocess.run(['mount', '-o', 'remount,ro', str(base)], check=True)"
    lines = in_mount(tmp_path, "size=1m", remount).splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("RootUnusable 2 The data root") and "Read-only file system. Nothing was changed" in line


def test_a_full_disk_is_reported_and_left(tmp_path: Path) -> None:
    fill = """if True:
        with open(base / "filler", "wb", buffering=0) as filler:
            try:
                while True: filler.write(bytes(4096))
            except OSError: pass
        """
    lines = in_mount(tmp_path, "size=256k", fill).splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("DiskFull 3 Could not write") and "free some space" in line and str(tmp_path) in line


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_refused_first_write_is_reported_and_left(tmp_path: Path, code: int) -> None:
    create_root(tmp_path / "old")
    before = tree(tmp_path)
    for act, path in ((create_root, "new"), (create_root, "old"), (open_root, "old")):
        recorder = Recorder(tmp_path)
        recorder.fail_at(0, code)
        with disk.use_kernel(recorder), pytest.raises(errors.RootUnusable, match=os.strerror(code)):
            act(tmp_path / path)
        assert recorder.fired
        assert tree(tmp_path) == before


# -- power cuts and faults --------------------------------------------------------------------------------------------


@pytest.mark.heavy
def test_create_survives_a_power_cut_at_every_operation(tmp_path: Path) -> None:
    def program(recorder: Recorder) -> None:
        recorder.mark(read_format(create_root(tmp_path / "sdd")).repository)

    disks = with_id = 0
    for acknowledged, base in each_disk(record(tmp_path, program)):
        disks += 1
        with_id += (base / "sdd" / "format.json").exists()
        if acknowledged:
            assert all((base / "sdd" / entry.relative).is_dir() for entry in FOLDERS)
            assert read_format(open_root(base / "sdd")).repository == acknowledged[0]
        layout = create_root(base / "sdd")
        assert [read_format(layout).repository] == acknowledged or not acknowledged
        assert all((base / "sdd" / entry.relative).is_dir() for entry in FOLDERS)
        assert not [path for path in base.rglob("*.tmp") if path.parent != base / "sdd"]
    assert disks > 30 and 0 < with_id < disks


def is_whole(content: dict[str, bytes | None], repository: str) -> bool:
    folders = {"sdd/" + entry.relative.rstrip("/") for entry in FOLDERS}
    return repository.encode() in (content.get("sdd/format.json") or b"") and folders <= content.keys()


def test_folders_that_a_dead_creator_left_unsynced_are_made_durable_by_the_next() -> None:
    """One creator is killed at each operation; the next finds its unsynced work and answers; then the power goes."""
    with scratch() as base:
        count = len(record(fresh(base / "whole"), lambda recorder: create_root(recorder.root / "sdd")).calls)
        for index in range(count):
            recorder = Recorder(fresh(base / str(index)))
            recorder.die_at(index)
            with disk.use_kernel(recorder):
                with pytest.raises(PowerCut):
                    create_root(recorder.root / "sdd")
                # Only the process was killed: what it had done stays visible, synced or not.
                recorder._dead = False
                answer = read_format(create_root(recorder.root / "sdd")).repository
            for content in powercut.Crash(recorder, len(recorder.calls)).disks():
                assert is_whole(content, answer), f"after the kill at {recorder.fired}"


def test_the_loser_of_the_race_makes_the_winners_file_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    def create_after_another(path: Path, data: bytes) -> None:
        with disk.StagedFile(path.parent) as staged:
            staged.write(b'{"format":2,"repository":"winner"}')
            staged.sync()
            staged.rename(path)
        real(path, data)

    real = disk.create
    monkeypatch.setattr(disk, "create", create_after_another)
    with scratch() as base:
        recorder = record(base, lambda recorder: create_root(base / "sdd"))
        for content in powercut.Crash(recorder, len(recorder.calls)).disks():
            assert is_whole(content, "winner")
        assert read_format(create_root(base / "sdd")).repository == "winner"


def test_a_disk_that_is_found_full_only_by_the_sync_is_left_as_it_was() -> None:
    with scratch() as base:
        calls = record(fresh(base / "whole"), lambda recorder: create_root(recorder.root / "sdd")).calls
        index = next(at for at, call in enumerate(calls) if call.kind == "sync" and call.path.endswith(".tmp"))
        recorder = Recorder(fresh(base / "full"))
        recorder.fail_at(index, errno.ENOSPC)
        with disk.use_kernel(recorder), pytest.raises(errors.SyncFailed, match="No space left"):
            create_root(recorder.root / "sdd")
        assert tree(recorder.root) == {}


def fresh(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_nothing_is_acknowledged_after_a_fault_and_the_next_start_succeeds() -> None:
    def program(recorder: Recorder) -> None:
        recorder.mark(read_format(create_root(recorder.root / "sdd")).repository)

    tried = 0
    for recorder, raised in each_fault(program, errno.EIO, errno.ENOSPC):
        tried += 1
        if raised is None:
            # Only the removal of a staged file's second name may fail unheard.
            assert [call.kind for call in recorder.fired] == ["unlink"]
        else:
            assert isinstance(raised, errors.DiskError | errors.RootUnusable)
            assert str(recorder.root) in str(raised) and not recorder.marks
        assert data_root.read_format(create_root(recorder.root / "sdd"))
    assert tried > 40
