from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.storage.audit import key as audit_key
from holdfast.storage.audit import log as audit
from holdfast.storage.audit.key import AuditKey
from holdfast.storage.files import disk
from holdfast.testing.recorder import Recorder
from kit.disks import each_disk, record


def same(one: AuditKey, two: AuditKey) -> bool:
    return one.signed({"a": 1}) == two.signed({"a": 1})


def key_file(tmp_path: Path, content: bytes = b"k" * 32, mode: int = 0o600) -> Path:
    path = tmp_path / "outside.key"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_missing_key_is_created_private_and_found_again(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": "relative, so ignored"}
    first = audit_key.load_key(tmp_path / "root", None, environ)
    path = tmp_path / "home" / ".config" / "holdfast" / "audit.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(bytes.fromhex(path.read_text())) == 32
    assert same(first, audit_key.load_key(tmp_path / "root", None, environ))
    other = audit_key.load_key(tmp_path / "root", None, environ | {"XDG_CONFIG_HOME": str(tmp_path / "xdg")})
    assert (tmp_path / "xdg" / "holdfast" / "audit.key").exists() and not same(first, other)


def test_the_environment_wins_and_the_same_text_is_the_same_key(tmp_path: Path) -> None:
    text = "ab" * 32
    path = key_file(tmp_path, text.encode() + b"\n")
    from_variable = audit_key.load_key(tmp_path / "root", key_file(tmp_path), {"HOLDFAST_AUDIT_KEY": text})
    path = key_file(tmp_path, text.encode() + b"\n")
    assert same(from_variable, audit_key.load_key(tmp_path / "root", path, {}))
    assert not same(from_variable, audit_key.load_key(tmp_path / "root", key_file(tmp_path), {}))


def test_a_key_is_not_created_where_only_reading_was_asked(tmp_path: Path) -> None:
    with pytest.raises(errors.AuditKeyUnusable, match="no such file"):
        audit_key.load_key(tmp_path / "root", tmp_path / "deep" / "key", {}, create=False)
    assert list(tmp_path.iterdir()) == []


def test_of_many_creators_one_wins_and_all_use_its_key(tmp_path: Path) -> None:
    barrier, keys = threading.Barrier(8), []

    def load() -> None:
        barrier.wait()
        keys.append(audit_key.load_key(tmp_path / "root", tmp_path / "new" / "key", {}))

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 8 and all(same(keys[0], key) for key in keys)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["key"]


def test_a_new_key_survives_a_power_cut_once_it_was_given_out(tmp_path: Path) -> None:
    given_out: list[AuditKey] = []

    def program(recorder: Recorder) -> None:
        given_out.append(audit_key.load_key(tmp_path / "root", tmp_path / "config" / "key", {}))
        recorder.mark("key")

    for acknowledged, root in each_disk(record(tmp_path, program)):
        if (root / "config" / "key").exists():
            (root / "config" / "key").chmod(0o600)
        again = audit_key.load_key(root / "root", root / "config" / "key", {})
        assert not acknowledged or same(again, given_out[0])


def test_a_key_that_its_maker_did_not_live_to_sync_is_made_certain_of(tmp_path: Path) -> None:
    """It signs what is synced elsewhere: without it, that could be neither verified nor continued."""
    path = tmp_path / "config" / "key"

    def program(recorder: Recorder) -> None:
        recorder.mkdir(path.parent)
        with disk.StagedFile(path.parent, 0o600) as staged:
            staged.write(b"k" * 32)
            staged.link(path)
        audit_key.load_key(tmp_path / "root", path, {})
        recorder.mark("key")

    given_out = 0
    for acknowledged, root in each_disk(record(tmp_path, program)):
        if acknowledged:
            assert (root / "config" / "key").read_bytes() == b"k" * 32
            given_out += 1
    assert given_out


def test_no_new_key_is_made_beside_a_log_that_another_has_signed(tmp_path: Path) -> None:
    root, path = tmp_path / "root", tmp_path / "config" / "key"
    with audit.AuditLog(root / "audit", audit_key.load_key(root, path, {})) as log:
        log.append("one", "tests")
    key = path.rename(tmp_path / "kept")
    with pytest.raises(errors.AuditKeyUnusable, match="put the key that has signed it back there or into the variable"):
        audit_key.load_key(root, path, {})
    assert not path.exists()
    audit_key.load_key(root, path, {"HOLDFAST_AUDIT_KEY": key.read_text()})
    key.rename(path)
    before = audit_key.load_key(root, path, {})
    path.unlink()
    (root / "audit").rename(tmp_path / "moved")
    assert not same(before, audit_key.load_key(root, path, {}))


def test_leftovers_of_a_crash_beside_the_key_are_swept_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    (folder / "deeper").mkdir(parents=True)
    left, deeper, other = ".hf-1-2-00000000-3.tmp", "deeper/.hf-1-2-00000000-3.tmp", "mine.tmp"
    for create, key_exists, expected in ((False, True, True), (True, True, False), (True, False, False)):
        for name in (left, deeper, other):
            (folder / name).write_bytes(b"half a key")
        (folder / "key").unlink(missing_ok=True)
        if key_exists:
            (folder / "key").touch(mode=0o600)
            (folder / "key").write_bytes(b"k" * 32)
        audit_key.load_key(tmp_path / "root", folder / "key", {}, create=create)
        assert (folder / left).exists() == expected
        assert (folder / deeper).exists() and (folder / other).exists()


def test_a_leftover_that_cannot_be_removed_does_not_stop_the_key(tmp_path: Path) -> None:
    path = key_file(tmp_path)
    (tmp_path / ".hf-1-2-00000000-3.tmp").write_bytes(b"")
    recorder = Recorder(tmp_path)
    recorder.fail_at(0, errno.EROFS)
    with disk.use_kernel(recorder):
        assert same(audit_key.load_key(tmp_path / "root", path, {}), AuditKey(b"k" * 32))
    assert [call.kind for call in recorder.fired] == ["unlink"]


REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "inside the data root": (lambda t: t / "root" / "audit.key", "inside the data root"),
    "inside through dots": (lambda t: t / "x" / ".." / "root" / "config" / "key", "inside the data root"),
    "readable for the group": (lambda t: key_file(t, mode=0o640), "mode 0640"),
    "writable for others": (lambda t: key_file(t, mode=0o602), "mode 0602"),
    "too short": (lambda t: key_file(t, b"k" * 31 + b"\n"), "31 bytes"),
    "empty": (lambda t: key_file(t, b""), "0 bytes"),
    "too long": (lambda t: key_file(t, b"k" * 5000), "4097 bytes"),
    "a folder": (lambda t: t, "not a file"),
    "below a file": (lambda t: key_file(t) / "key", "cannot be opened"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_an_unsafe_key_is_refused(tmp_path: Path, how: str) -> None:
    make, reason = REFUSED[how]
    (tmp_path / "root").mkdir()
    with pytest.raises(errors.AuditKeyUnusable, match=reason) as caught:
        audit_key.load_key(tmp_path / "root", make(tmp_path), {})
    assert "kkkk" not in str(caught.value) and list((tmp_path / "root").iterdir()) == []


def test_a_link_into_the_data_root_is_seen_through(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "root")
    (tmp_path / "key").symlink_to(tmp_path / "root" / "audit.key")
    for root, path in (("root", tmp_path / "key"), ("root", tmp_path / "alias" / "k"), ("alias", tmp_path / "root/k")):
        with pytest.raises(errors.AuditKeyUnusable, match="inside the data root"):
            audit_key.load_key(tmp_path / root, path, {})
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(errors.AuditKeyUnusable, match="cannot be opened"):
        audit_key.load_key(tmp_path / "root", tmp_path / "loop", {})


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(errors.AuditKeyUnusable, match="not a file"):
        audit_key.load_key(tmp_path / "root", tmp_path / "pipe", {})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_key_of_another_user_is_refused(tmp_path: Path) -> None:
    path = key_file(tmp_path)
    os.chown(path, 12345, -1)
    with pytest.raises(errors.AuditKeyUnusable, match="belongs to user 12345"):
        audit_key.load_key(tmp_path / "root", path, {})


@pytest.mark.parametrize("value", ["", "   ", "kkkk" * 7])
def test_a_short_key_in_the_environment_is_refused_not_ignored(tmp_path: Path, value: str) -> None:
    with pytest.raises(errors.AuditKeyUnusable, match="HOLDFAST_AUDIT_KEY") as caught:
        audit_key.load_key(tmp_path / "root", key_file(tmp_path), {"HOLDFAST_AUDIT_KEY": value})
    assert "kkkk" not in str(caught.value)


def test_the_key_never_shows_itself(tmp_path: Path) -> None:
    key = audit_key.load_key(tmp_path, None, {"HOLDFAST_AUDIT_KEY": "very secret " * 4})
    log = audit.AuditLog(tmp_path / "audit", key)
    assert "very" not in f"{key!r} {key} {log!r}"
    with pytest.raises(errors.InputError) as caught:
        log.append("x", "tests", {"x": object()})
    assert "very" not in str(caught.value)
