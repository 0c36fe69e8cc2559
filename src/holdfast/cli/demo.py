"""`demo`: shows the promise kept, in a temporary folder of its own, and leaves nothing behind."""

from __future__ import annotations

import os
import random
import secrets
from pathlib import Path

import click

from holdfast.cli.options import print_json, prints_json
from holdfast.errors import HoldfastError

NEXT = """
Next, in a repository of yours:
  holdfast init
  holdfast agents                                       who can work here: installed, signed in
  holdfast add "Fix the login" --verify "make test"
  holdfast run                                          kill it, and start it again
"""


@click.command(epilog="Examples:  holdfast demo  ·  holdfast demo --seed 7  ·  holdfast demo --json | jq .figures")
@click.option("--seed", type=int, metavar="N", help="Choose what is killed, and when, as with this number before.")
@prints_json
def demo(ctx: click.Context, seed: int | None, as_json: bool) -> None:
    """Work on a dozen sample tasks, kill everything meanwhile, and count what was lost.

    A sample repository is made in a temporary folder, with agents that follow a script: it costs nothing, touches
    nothing of yours, and leaves nothing behind. The orchestrator is killed with SIGKILL at the n-th step of the agents,
    and in the middle of a verification, a landing, a refresh and its own recovery; so are an agent and a runner. Exit
    code 1 says that something did not hold; then the folder is kept.
    """
    from holdfast.app import App
    from holdfast.clock import monotonic
    from holdfast.demo.lives import Lives, Stuck, ending, last_lines
    from holdfast.demo.sample import ALL, Sample
    from holdfast.demo.sums import Sums, sums
    from holdfast.git import command as git
    from holdfast.storage.files import disk

    git.require_minimum()
    seed = random.randrange(10_000) if seed is None else seed
    say = (lambda line: None) if as_json else click.echo
    began = monotonic()
    sample = Sample(Path(os.environ.get("TMPDIR", "/tmp"), f"holdfast-demo-{secrets.token_hex(4)}").resolve())
    lives = Lives(sample, random.Random(seed), say)
    disk.mkdir(sample.folder, 0o700)
    is_kept = False
    try:
        with ending(lives):
            sample.make()
            App.find(sample.repo, environ=sample.environment()).init()
            sample.add_tasks()
            say(f"{len(ALL)} tasks in {sample.repo}; seed {seed} (`holdfast demo --seed {seed}` chooses alike)\n")
            try:
                code = lives.live_and_die()
                said = sums(lives, monotonic() - began) if not code else Sums({}, [f"the last run ended with {code}"])
            except (Stuck, HoldfastError) as error:
                said = Sums({}, [str(error)])
        is_kept = bool(said.problems)
        log = last_lines(sample.log) if is_kept else ""
    finally:
        if not is_kept:
            disk.remove_tree(sample.folder)
    if as_json:
        kept = str(sample.folder) if is_kept else None
        print_json(
            {"seed": seed, "kills": lives.kills, "figures": said.figures, "problems": said.problems, "kept": kept}
        )
    else:
        _print_result(said.figures, said.problems, sample.folder, log)
    ctx.exit(1 if is_kept else 0)


def _print_result(figures: dict[str, str], problems: list[str], folder: Path, log: str) -> None:
    click.echo()
    for name, value in figures.items():
        click.echo(f"  {name:20} {value}")
    if not problems:
        click.echo(NEXT, nl=False)
        return
    for problem in problems:
        click.echo(f"\nThis must not be: {problem}")
    click.echo(f"\nEverything is kept in {folder}; the last lines of `holdfast run` are:\n{log}")
