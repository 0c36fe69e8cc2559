"""Each CLI in bwrap, with its home read-only but for the folders that its adapter names."""

from __future__ import annotations

from pathlib import Path

from holdfast.domain.task import TaskState
from kit.confined import needs_bwrap
from kit.confined import place as place
from kit.model_server import Step
from real_agents.kits import Kit
from real_agents.site import Site

pytestmark = needs_bwrap

# Where a hook, a plugin, a program or an instruction would be taken from by the next start, confined or not.
PLACES = (
    ".claude/settings.json", ".claude/projects/x/memory/MEMORY.md", ".claude/hooks/x.sh", ".claude/CLAUDE.md",
    ".claude/commands/x.md", ".claude.json", ".codex/config.toml", ".codex/AGENTS.md", ".codex/rules/x",
    ".gemini/settings.json", ".gemini/GEMINI.md", ".gemini/extensions/x/gemini-extension.json", ".gemini/.env",
    ".gemini/tmp/bin/rg", ".gemini/history/x/.git/config", ".config/opencode/opencode.json",
    ".config/opencode/plugin/x.js", ".local/share/opencode/bin/x", ".cache/opencode/node_modules/x.js",
    ".aider.conf.yml", ".config/mini-swe-agent/.env", ".bashrc", ".ssh/config",
)  # fmt: skip


def test_a_confined_agent_lands_and_continues_and_plants_nothing(kit: Kit, place: Path) -> None:
    """The gate fails once: the second start goes on with the conversation that the first one has written."""
    plant = "; ".join(f"mkdir -p ~/{Path(name).parent}; echo planted > ~/{name}" for name in PLACES)
    with Site(place, kit, sandbox="bwrap") as site:
        file = site.add(verify=[{"command": "grep right a.txt"}])
        if kit.has_tools:
            wrong = kit.shell(f"echo wrong > a.txt; ({plant}) > /dev/null 2>&1; printf 'marker-%d' 052")
            right = kit.shell("echo right > a.txt")
        else:
            wrong, right = kit.edit(file, "wrong\n"), kit.edit(file, "right\n")
        # Aider does a message with one answer.
        ends = [[Step("It is done.")], [Step("Now it is done.")]] if kit.has_tools else [[], []]
        site.model.then(Step("First.", [wrong]), *ends[0], Step("Oh.", [right]), *ends[1])
        site.run()
        assert site.task.state is TaskState.CLOSED and "right" in site.landed() and site.task.attempts == 2
        if kit.keeps:
            assert site.model.requests[2].has("marker-42"), "the conversation is not the same"
        found = [name for name in PLACES if (site.home / name).is_file()]
        assert [name for name in found if "planted" in (site.home / name).read_text()] == []
