"""Of a CLI's own folders a confined agent writes the conversations, and nothing that a later start runs or reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.domain.attempt_records import Ending, Home, Launch
from kit.confined import needs_bwrap
from kit.runner import Bench

pytestmark = needs_bwrap

# It writes wherever a CLI's own folder has something to plant, and a conversation.
PLANT = """
    for f in settings.json hooks/x CLAUDE.md projects/p/talk.jsonl history.jsonl; do
        mkdir -p "$(dirname "$HOME/.claude/$f")"; echo planted > "$HOME/.claude/$f"
    done 2>/dev/null
    cat "$HOME/.claude/settings.json" "$HOME/.claude/history.jsonl" > seen
"""


@pytest.mark.parametrize("opened", [False, True])
def test_a_confined_agent_keeps_its_conversation_and_plants_no_hook(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: bool
) -> None:
    """Neither where the settings open the whole folder."""
    home = tmp_path / "home"
    folder = home / ".claude"
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text("mine\n")
    (folder / "history.jsonl").write_text("mine\n")
    monkeypatch.setenv("HOME", str(home))
    claimed = Home(str(folder), ("projects",), ("history.jsonl",))
    launch = Launch(("sh", "-c", PLANT), env={"HOME": str(home)}, homes=(claimed,))
    writable = (str(folder),) if opened else ()
    ended = bench.run(agent="command", launch=launch, sandbox="bwrap", sandbox_writable=writable)
    assert ended.ending is Ending.DONE, ended
    assert (bench.worktree / "seen").read_text() == "mine\nplanted\n"
    found = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert found == {"settings.json": "mine\n", "history.jsonl": "mine\n", "projects/p/talk.jsonl": "planted\n"}
