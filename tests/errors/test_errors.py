from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from holdfast import errors


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_can_be_copied_and_pickled(again) -> None:  # type: ignore[no-untyped-def]
    error = errors.DiskFull(operation="write", path=Path("/a/b"), reason="No space left")
    error.add_note("while testing")
    copied = again(error)
    assert type(copied) is errors.DiskFull and str(copied) == str(error) and copied.facts == error.facts
    assert copied.path == Path("/a/b") and copied.__notes__ == ["while testing"]


def test_a_narrower_error_has_the_code_of_the_wider_one_unless_it_names_its_own() -> None:
    assert (errors.HoldfastError.exit_code, errors.DiskError.exit_code, errors.DiskFull.exit_code) == (1, 3, 3)
    assert errors.MoveRefused.exit_code == errors.IllegalTransition.exit_code == 9
