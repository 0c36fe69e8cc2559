"""Where `syncfs` does nothing, every file and folder is synced by itself, and `doctor` says which filesystem it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from holdfast.storage.files import disk, filesystems
from holdfast.storage.files.kernel import Kernel
from holdfast.storage.records.blobs import Blobs
from kit.disks import require_strace
from kit.mounts import mounts
from kit.program import holdfast
from kit.project import add, landed, make_repo, sound
from kit.traced_disk import VARIANTS, trace

MOUNTS = r"""22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw
23 22 0:21 / /mnt rw - tmpfs none rw
24 23 0:22 / /mnt/a\040b rw shared:2 master:1 - fuse.sshfs host:/ rw
25 22 0:23 / /srv rw - nfs4 host:/srv rw
26 22 0:24 / /srv rw - xfs /dev/sdb rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "trust"),
    [
        ("/home/x", "ext4", "durable"),
        ("/mnt/x", "tmpfs", "not durable"),
        ("/mnt/a b/x", "fuse.sshfs", "unknown"),
        ("/srv", "xfs", "durable"),
        ("/srvx", "ext4", "durable"),
    ],
)
def test_the_filesystem_of_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, kind: str, trust: str
) -> None:
    listed = tmp_path / "mountinfo"
    listed.write_text(MOUNTS)
    monkeypatch.setattr(filesystems, "MOUNTS", listed)
    assert filesystems.kind_of(Path(path)) == kind and filesystems.trust_of(kind) == trust


class Counting(Kernel):
    def __init__(self) -> None:
        self.whole = 0
        self.synced: set[str] = set()

    def syncfs(self, fd: int) -> None:
        self.whole += 1
        super().syncfs(fd)

    def fsync(self, fd: int) -> None:
        self.synced.add(str(Path(f"/proc/self/fd/{fd}").readlink()))
        super().fsync(fd)


def on(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(filesystems, "_whole", {})
    monkeypatch.setattr(filesystems, "kind_of", lambda path: kind)


@pytest.mark.parametrize(("kind", "is_whole"), [("ext4", True), ("fuse", False), ("fuseblk", False), ("nfs", False)])
def test_a_batch_is_synced_file_by_file_where_syncfs_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, is_whole: bool
) -> None:
    on(monkeypatch, kind)
    counting, blobs = Counting(), Blobs(tmp_path / "cas")
    with disk.use_kernel(counting):
        digests = blobs.put_many([b"one", b"two", b"three"])
        disk.sync_filesystem(tmp_path, [tmp_path / "cas"])
    assert bool(counting.whole) is is_whole
    if not is_whole:
        folders = {str(tmp_path / "cas" / digest[:2]) for digest in digests}
        assert folders <= counting.synced and str(tmp_path / "cas") in counting.synced
        assert sum(".tmp" in name for name in counting.synced) >= 2 * len(digests), (
            "a blob or description was not synced"
        )


def test_doctor_says_which_filesystem_it_is_and_whether_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = make_repo(tmp_path / "repo")
    on(monkeypatch, "ext4")
    assert "the data root is on ext4 (trusted)" in holdfast(repo, "doctor", code=None)
    on(monkeypatch, "fuse.sshfs")
    told = " ".join(holdfast(repo, "doctor", code=None).split())
    assert "is on fuse.sshfs" in told and "cannot vouch" in told and "findmnt -T" in told
    on(monkeypatch, "tmpfs")
    assert "gone with the power" in " ".join(holdfast(repo, "doctor", code=None).split())


# -- a real one -------------------------------------------------------------------------------------------------------

_MOUNT = 'bindfs -f "$0" "$1" & while ! mountpoint -q "$1"; do sleep 0.05; done; shift; exec "$@"'
_PUT = """
import subprocess, sys
from pathlib import Path
from holdfast.storage.files import filesystems
from holdfast.storage.records.blobs import Blobs
top = Path(sys.argv[1])
print("on", filesystems.kind_of(top), flush=True)
if sys.argv[2:]:
    filesystems.kind_of = lambda path: "ext4"
for number in range(3):
    print(*Blobs(top / "cas").put_many([b"a%d" % number * 99, b"b%d" % number * 99]), flush=True)
subprocess.run(["umount", top], check=True)
"""


def require_fuse() -> None:
    if shutil.which("bindfs") is None or not os.access("/dev/fuse", os.W_OK):
        pytest.skip("a FUSE filesystem needs bindfs (apt install bindfs) and a /dev/fuse that can be written")


def lost_blobs(tmp_path: Path, *more: str) -> int:
    """Puts blobs on a FUSE filesystem; how many that were acknowledged some power cut took from below it."""
    below, above = tmp_path / "below", tmp_path / "above"
    below.mkdir()
    above.mkdir()
    command = ["sh", "-c", _MOUNT, str(below), str(above), sys.executable, "-c", _PUT, str(above), *more]
    traced = trace(command, below, tmp_path / "base", dict(os.environ))
    assert traced.moments[-1].acknowledged.startswith("on fuse")
    lost = set()
    for moment in traced.moments:
        # What a folder has is for the filesystem's own program to sync, and bindfs does not.
        for variant in VARIANTS[:2]:
            left = moment.left(variant)
            for digest in moment.acknowledged.split()[2:]:
                if sha256(left.get(f"cas/{digest[:2]}/{digest}", b"")).hexdigest() != digest:
                    lost.add(digest)
    return len(lost)


@mounts
def test_an_acknowledged_write_on_fuse_survives_a_power_cut_below_it(tmp_path: Path) -> None:
    require_fuse()
    require_strace()
    assert lost_blobs(tmp_path) == 0


@mounts
def test_syncfs_on_fuse_syncs_nothing(tmp_path: Path) -> None:
    """Why each file is synced by itself there, and that the test above would see it."""
    require_fuse()
    require_strace()
    assert lost_blobs(tmp_path, "as on ext4") == 6


@pytest.mark.heavy
@mounts
def test_a_run_on_fuse(tmp_path: Path) -> None:
    require_fuse()
    (tmp_path / "below").mkdir()
    above = tmp_path / "above"
    above.mkdir()
    subprocess.run(["bindfs", tmp_path / "below", above], check=True)
    repo = make_repo(above / "repo")
    add(repo, "a", "write a.txt x\nwrite b.txt x")
    holdfast(repo, "run")
    assert landed(repo) == ["a"]
    sound(repo)
    assert "the data root is on fuse" in " ".join(holdfast(repo, "doctor", code=None).split())
