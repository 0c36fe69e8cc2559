"""The reader of a plugin's agent: the function that its launch names."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast.agents.streams import stream_of
from holdfast.domain.attempt_records import Launch, Order


def test_an_agent_of_a_plugin_names_its_own_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plugin_reader.py").write_text("def reader(launch): return ['read by', launch.argv[0]]\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    facts = {field.name: "" for field in msgspec.structs.fields(Order) if field.required}
    facts |= {"agent": "helper", "launch": Launch(("helper",), stream="plugin_reader:reader")}
    assert stream_of(Order(**facts)) == ["read by", "helper"]
