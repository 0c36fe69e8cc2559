"""Plugins over the API: listed, disabled and enabled, as the command does it."""

from __future__ import annotations

from pathlib import Path

from kit.plugins import install
from kit.project import state
from kit.server import served


def test_a_plugin_is_listed_disabled_and_enabled(repo: Path, tmp_path: Path) -> None:
    install(tmp_path / "site", "quiet", "holdfast_api = 1\n@hookimpl\ndef landed(commit): pass\n")
    with served(repo, PYTHONPATH=str(tmp_path / "site")) as server:
        (row,) = server.operator.ask("GET", "/plugins").json["plugins"]
        assert (row["name"], row["state"], row["hooks"]) == ("quiet", "enabled", ["landed"])
        told = server.operator.ask("POST", "/plugins/quiet/disable", {"reason": "why not"})
        assert told.status == 200 and told.json["plugin"] == "quiet"
        assert server.operator.ask("GET", "/plugins").json["plugins"][0]["reason"] == "why not"
        assert server.operator.ask("POST", "/plugins/quiet/enable", {}).status == 200
        assert server.operator.ask("GET", "/plugins").json["plugins"][0]["state"] == "enabled"
        assert server.operator.ask("POST", "/plugins/nobody/enable", {}).status == 404
        assert server.reader.ask("POST", "/plugins/quiet/disable", {}).status == 403
    assert state(repo).connections.plugins_aside == {}
