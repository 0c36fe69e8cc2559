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
