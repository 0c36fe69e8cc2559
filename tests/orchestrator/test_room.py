"""A machine without room for another agent: nothing is started, it is said why, and the run goes on by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.app import App
from holdfast.cli.screen import picture
from holdfast.orchestrator import holds
from holdfast.orchestrator.loop import Loop
from holdfast.processes import controllers
from holdfast.wiring import run_context
from kit.program import holdfast
from kit.project import add, landed, settings, sound

MB = 1 << 20
SHORT = "100 MB of memory are free, and memory_free_min is 200 MB"


@pytest.mark.heavy
def test_a_run_starts_nothing_while_memory_is_short_and_goes_on_by_itself(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holds, "TRY_AGAIN_S", 0.01)
    settings(repo, memory_free_min=200 * MB)
    for name in ("a", "b"):
        add(repo, name, f"write {name}.txt x")
    free, looks = [100 * MB], list[str]()
    monkeypatch.setattr(controllers, "memory_free", lambda pid="self": (free[0], None))
    said: list[str] = []

    def show(loop: Loop) -> None:
        """Looks as a person would, while it waits; then there is memory."""
        if len(looks) < 3:
            assert not loop.at_work and loop.holds[holds.ALL].reason.endswith("They are started when there is more.")
            looks.append(holdfast(repo, "status"))
            if len(looks) == 3:
                told = json.loads(holdfast(repo, "status", "--json"))["host"]
                assert told["memory_free"] == 100 * MB and SHORT in told["short"]
                held = json.loads(holdfast(repo, "list", "--json"))["held"]
                assert held.keys() == {"a", "b"} and SHORT in held["a"] and SHORT in holdfast(repo, "list")
                assert SHORT in picture.heading(picture.see(App.find(repo)), 0.0)[1]
                free[0] = 2000 * MB

    with run_context(App.find(repo), lambda task, text: said.append(f"{task}: {text}")) as context:
        Loop(context, show=show).run()
    assert len(looks) == 3 and all(SHORT in " ".join(look.split()) for look in looks)
    # Said once when it begins, and once when it is over.
    (told,) = [line for line in said if "memory" in line]
    assert told == f": No more agents are started now: {SHORT}. They are started when there is more."
    assert sum("There is room on this machine again" in line for line in said) == 1
    assert sorted(landed(repo)) == ["a", "b"]
    sound(repo)


@pytest.mark.heavy
def test_agents_that_have_just_started_keep_others_back_where_memory_is_scarce(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at once would need twice `memory_free_min`: the second is started when the first has ended."""
    monkeypatch.setattr(holds, "TRY_AGAIN_S", 0.01)
    settings(repo, memory_free_min=200 * MB, max_agents=2)
    monkeypatch.setattr(controllers, "memory_free", lambda pid="self": (300 * MB, None))
    for name in ("a", "b"):
        add(repo, name, f"write {name}.txt x")
    most, said = 0, list[str]()

    def show(loop: Loop) -> None:
        nonlocal most
        most = max(most, len(loop.at_work))

    with run_context(App.find(repo), lambda task, text: said.append(text)) as context:
        Loop(context, show=show).run()
    assert most == 1 and sorted(landed(repo)) == ["a", "b"]
    assert any("1 agent of the last 10 s may still take as much" in line for line in said)
