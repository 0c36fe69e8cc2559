from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.storage.audit import log, proofs, seals
from kit.audit import D1, D2, KEY, Clock, fill, lines_of, read
from kit.disks import scratch


def test_every_sealed_record_proves_to_a_stranger(tmp_path: Path) -> None:
    fill(tmp_path, 3, 5, 1, seal_after=(2,))
    (root,) = {json.loads(path.read_bytes())["root"] for path in (tmp_path / "merkle").iterdir()}
    for made in list(read(tmp_path, KEY)):
        day = f"2026-11-{15 + int(made.event[0])}"
        document = proofs.prove(tmp_path, day, made.seq).document()
        assert proofs.check_proof(document, root) == made
        assert proofs.check_proof(document, f" {root.upper()}\n") == made
        with pytest.raises(errors.ProofInvalid, match="not to the one that is trusted"):
            proofs.check_proof(document, "0" * 64)


def test_a_proof_can_be_checked_by_hand_from_the_description_alone(tmp_path: Path) -> None:
    """Nothing of Holdfast is used here but the document: two leaves in each tree."""
    (seal,) = fill(tmp_path, 2, 2, seal_after=(1,))

    def digest(*parts: bytes) -> bytes:
        return hashlib.sha256(b"".join(parts)).digest()

    proof = json.loads(proofs.prove(tmp_path, D2, 0).document())
    day = proof["day"]
    records_root = digest(b"\1", digest(b"\0", proof["line"].encode()), bytes.fromhex(proof["record_path"][0]))
    fields = [day["file"], str(day["records"]), day["last_hmac"], records_root.hex(), str(day["size"]), day["sha256"]]
    leaf = "\n".join(fields).encode()
    root = digest(b"\1", bytes.fromhex(proof["day_path"][0]), digest(b"\0", leaf))
    assert root.hex() == seal.root and json.loads(proof["line"])["event"] == "1.0"


def test_a_proof_of_a_day_of_ten_thousand_records_stays_small() -> None:
    with scratch() as folder:
        (seal,) = fill(folder, 10_000, seal_after=(0,))
        for seq in (0, 4_321, 9_999):
            proof = proofs.prove(folder, D1, seq)
            document = proof.document()
            assert len(proof.record_path) <= 14 and len(document) < len(proof.line) + 2_000
            assert proofs.check_proof(document, seal.root).event == f"0.{seq}"


def test_a_flip_of_any_byte_never_proves_another_record(tmp_path: Path) -> None:
    (seal,) = fill(tmp_path, 3, 2, seal_after=(1,))
    proof = proofs.prove(tmp_path, D1, 1)
    document, made = proof.document(), proofs.check_proof(proof.document(), seal.root)
    refused = 0
    for at in range(len(document) - 1):
        for bits in (0x01, 0x20):
            try:
                shown = proofs.check_proof(document[:at] + bytes([document[at] ^ bits]) + document[at + 1 :], seal.root)
                # Only what proves nothing may differ: the seal's name, the root it repeats, the case of a hash.
                assert shown == made
            except errors.ProofInvalid:
                refused += 1
        with pytest.raises(errors.ProofInvalid):
            proofs.check_proof(document[:at], seal.root)
    assert refused > len(document)


def test_a_proof_cannot_be_turned_into_one_of_another_place(tmp_path: Path) -> None:
    (seal,) = fill(tmp_path, 3, 2, seal_after=(1,))
    one, two = (json.loads(proofs.prove(tmp_path, D1, seq).document()) for seq in (0, 1))
    day = one["day"]
    changes = [
        {"line": two["line"]},
        {"record_path": two["record_path"]},
        {"record_path": []},
        {"day": day | {"records": 2}},
        {"day": day | {"file": D2}},
        {"day": day | {"last_hmac": "0" * 64}},
        {"day": day | {"size": day["size"] + 1}},
        {"day": day | {"sha256": "0" * 64}},
        {"day_index": 1},
        {"day_count": 3},
        {"day_path": []},
        {"line": "not a record"},
        {"line": one["line"].replace("0.0", "9.9")},
        {"record_path": ["no hash"]},
        {"format": 2},
    ]
    for change in changes:
        with pytest.raises(errors.ProofInvalid):
            proofs.check_proof(json.dumps(one | change).encode(), seal.root)
    assert proofs.check_proof(json.dumps(one).encode(), seal.root).event == "0.0"


def test_a_record_that_is_not_sealed_yet_says_to_seal_first(tmp_path: Path) -> None:
    fill(tmp_path, 2, seal_after=(0,))
    log.AuditLog(tmp_path, KEY, clock=Clock()).append("later", "tests")
    for day, seq in ((D1, 2), (D2, 0), (D1, -1)):
        with pytest.raises(errors.NotSealed, match="seal the log first"):
            proofs.prove(tmp_path, day, seq)
    newer = seals.seal(tmp_path, KEY)
    proof = proofs.prove(tmp_path, D1, 2)
    assert proof.seal == newer.file and proofs.check_proof(proof.document(), newer.root).event == "later"


def test_nothing_is_proven_from_a_log_or_a_seal_that_was_edited(tmp_path: Path) -> None:
    (seal,) = fill(tmp_path, 2, seal_after=(0,))
    content, path = (tmp_path / D1).read_bytes(), tmp_path / "merkle" / seal.file
    for wrong in (content.replace(b'"0.1"', b'"9.9"'), lines_of(tmp_path / D1)[0], b""):
        (tmp_path / D1).write_bytes(wrong)
        with pytest.raises(errors.AuditCorrupt, match="begin with the 2 records"):
            proofs.prove(tmp_path, D1, 0)
    (tmp_path / D1).unlink()
    with pytest.raises(errors.AuditCorrupt, match="begin with the 2 records"):
        proofs.prove(tmp_path, D1, 0)
    path.write_bytes(path.read_bytes().replace(b'"records":2', b'"records":1'))
    with pytest.raises(errors.AuditCorrupt, match="not the root of its days"):
        proofs.prove(tmp_path, D1, 0)
    path.unlink()
    path.mkdir()
    with pytest.raises(errors.AuditCorrupt, match="cannot be read"):
        proofs.prove(tmp_path, D1, 0)


def test_a_proof_is_made_past_torn_bytes_and_unsealed_records(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    with (tmp_path / D1).open("ab") as file:
        file.write(b'{"seq":2,"pre')
    log.AuditLog(tmp_path, KEY, clock=Clock()).append("after", "tests")
    seal = seals.seal(tmp_path, KEY)
    log.AuditLog(tmp_path, KEY, clock=Clock()).append("unsealed", "tests")
    assert proofs.check_proof(proofs.prove(tmp_path, D1, 2).document(), seal.root).event == "after"


@pytest.mark.parametrize("day", ["yesterday", "../secrets", "2026-11-15.json", "", "2026-13-99", "20261115"])
def test_a_day_that_is_none_is_refused(tmp_path: Path, day: str) -> None:
    with pytest.raises(errors.InvalidName, match="a date such as"):
        proofs.prove(tmp_path, day, 0)
