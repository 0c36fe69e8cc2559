"""A run in words: the number of tasks in each state, what is left, why, and what to type next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.clock import wall
from holdfast.domain.task import AT_WORK, TaskState
from holdfast.domain.task_record import open_questions
from holdfast.domain.wording import money, plural
from holdfast.landing import lost_landings
from holdfast.landing.gate_results import output_of_task
from holdfast.views.next_step import next_step_of, stuck_behind

if TYPE_CHECKING:
    from holdfast.orchestrator.loop import Loop

LEFT_TOLD_MAX = 20


def counted(states: Counter[str]) -> str:
    """`2 open, 3 closed`; those that have ended come last, because a narrow screen cuts the end."""
    words = (f"{states[state]} {state}" for state in TaskState if states[state])
    return ", ".join(words) or "no tasks"


def summary(loop: Loop, left: list[str]) -> Iterator[str]:
    """The run's end, and for each task that is left why, and what to type."""
    run = loop.context.ledger.state.run
    states = Counter(str(task.state) for task in list(loop.board.tasks.values()))
    yield f"{counted(states)}; {plural(run.turns, 'turn')}, {money(run.usd)}"
    told = [name for name in left if name in loop.holds or not _is_merely_ready(loop, name)]
    for name in told[:LEFT_TOLD_MAX]:
        task, hold = loop.board.task(name), loop.holds.get(name)
        why = "; ".join([hold.reason] if hold else reasons_to_wait(loop, name)) or str(task.outcome.get("detail", ""))
        yield f"  {name} is {task.state}" + (f": {why}" if why else "")
        if task.state is TaskState.FAILED:
            yield from (f"      | {line}" for line in output_of_task(loop.context.layout, loop.context.blobs, task))
        stuck = stuck_behind(loop.board.graph, name) if name in loop.board.graph else []
        step = next_step_of(name, task.state, task, stuck=stuck, is_held=name in loop.holds)
        # This run ends here: the next one follows the agents that still work.
        yield f"    next: {'holdfast run' if task.state in AT_WORK and not open_questions(task) else step}"
    if len(told) > LEFT_TOLD_MAX:
        yield f"  and {len(told) - LEFT_TOLD_MAX} more; `holdfast list` shows all"
    if ready := len(left) - len(told):
        yield f"  {ready} {'is' if ready == 1 else 'are'} ready"
        yield "    next: holdfast run"
    for name, sentence in loop.context.lost.items():
        yield f"  {name} is {loop.board.task(name).state}, and its landing is lost"
        yield f"    next: {lost_landings.next_step(name, sentence)}"
    if files := list(dict.fromkeys(f"{each.file}:{each.line}" for each in loop.board.problems)):
        more = f" and {len(files) - LEFT_TOLD_MAX} more" if len(files) > LEFT_TOLD_MAX else ""
        yield f"  {plural(len(files), 'file')} cannot be used: {', '.join(files[:LEFT_TOLD_MAX])}{more}"
        yield f"    next: mend {'it' if len(files) == 1 else 'them'} (`holdfast list` says why), then holdfast run"
    if messages := len(loop.context.ledger.state.outbox):
        yield f"  {plural(messages, 'message waits', 'messages wait')} to be sent; `holdfast outbox`"


def _is_merely_ready(loop: Loop, name: str) -> bool:
    task = loop.board.task(name)
    return task.state is TaskState.OPEN and not task.parked and not reasons_to_wait(loop, name)


def reasons_to_wait(loop: Loop, name: str) -> list[str]:
    """Without what the state says by itself."""
    if name not in loop.board.graph:
        return []
    return [why for why in loop.board.graph.reasons_to_wait(name, wall()) if not why.startswith("it is ")]
