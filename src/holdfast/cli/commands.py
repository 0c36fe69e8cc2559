"""The command's outer edge: the list of commands, and how their errors are shown.

A command's module is imported only when the command runs, so that `--help` stays fast whatever there is to import.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from holdfast import __version__
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Each command: the module and function that it is, and its line in `holdfast --help`.
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("holdfast.cli.demo:demo", "Work on sample tasks, kill everything meanwhile, and count what was lost."),
    "init": ("holdfast.cli.tasks.listing:init", "Make the data root of this repository."),
    "add": ("holdfast.cli.tasks.add_edit:add", "Add a task: a goal in words, files, or - for standard input."),
    "run": ("holdfast.cli.run:run", "Work on the tasks until nothing is left to do."),
    "serve": ("holdfast.cli.serve:serve", "Serve the API and the dashboard, and start no agents."),
    "dashboard": (
        "holdfast.cli.serve:dashboard",
        "Print the address of the dashboard, with the token that lets you in.",
    ),
    "mcp": ("holdfast.cli.mcp:mcp", "Serve tools to your own Claude Code or Codex session, by MCP."),
    "stop": ("holdfast.cli.run:stop", "End the run, its agents, or the agents of some tasks."),
    "watch": ("holdfast.cli.watch:watch", "Watch a run live, with keys, from any terminal."),
    "attach": ("holdfast.cli.attach:attach", "Follow an agent's output, from any terminal."),
    "list": ("holdfast.cli.tasks.listing:list_tasks", "List the tasks with their states."),
    "status": ("holdfast.cli.status:status", "Count the tasks by state; show the run, its agents, and what waits."),
    "show": ("holdfast.cli.tasks.show:show", "Show one task: its state and why, and its definition."),
    "gates": ("holdfast.cli.tasks.gates:gates", "Show the results of a task's gates, and what they printed."),
    "hooks": (
        "holdfast.cli.tasks.hooks:hooks",
        "Show the setup and hooks of a task's worktrees, and what they printed.",
    ),
    "edit": ("holdfast.cli.tasks.add_edit:edit", "Change a task's definition, by options or in your editor."),
    "prompt": ("holdfast.cli.tasks.prompt:prompt", "Show the exact prompt that a task's agent would get."),
    "cancel": ("holdfast.cli.tasks.decisions:cancel", "Cancel a task; its agent is ended."),
    "retry": ("holdfast.cli.tasks.decisions:retry", "Open a failed task again."),
    "approve": ("holdfast.cli.tasks.decisions:approve", "Let a result land that waits for you."),
    "review": (
        "holdfast.cli.tasks.review:review",
        "Look at a result that waits for you, comment on it, approve it or send it back.",
    ),
    "reject": ("holdfast.cli.tasks.decisions:reject", "Refuse a result that waits for you."),
    "questions": ("holdfast.cli.tasks.questions:questions", "List what agents ask you, and wait for."),
    "ask": ("holdfast.cli.tasks.questions:ask", "For an agent at work: ask a person, and print the answer."),
    "answer": ("holdfast.cli.tasks.questions:answer", "Answer what an agent asks: allow, deny, or words."),
    "resume": (
        "holdfast.cli.tasks.decisions:resume",
        "Continue the last attempt of a task that has failed or was stopped.",
    ),
    "tell": ("holdfast.cli.tasks.conversations:tell", "Tell a task's agent something, in its conversation."),
    "take": (
        "holdfast.cli.tasks.takeovers:take",
        "Talk to a task's agent yourself, in this terminal.",
    ),
    "give-back": ("holdfast.cli.tasks.takeovers:give_back", "Give a task back that somebody has taken."),
    "reassign": ("holdfast.cli.tasks.decisions:reassign", "Take a task from its agent and give it to another."),
    "promote": ("holdfast.cli.tasks.decisions:promote", "Land what an attempt made, again or after all."),
    "turns": ("holdfast.cli.tasks.turns:turns", "List the turns of an attempt: what each did, and cost."),
    "diff": (
        "holdfast.cli.tasks.turns:diff",
        "Show a task's whole change as it would land, or what a turn changed.",
    ),
    "undo": ("holdfast.cli.tasks.decisions:undo", "Put a task's worktree back to how a turn left it."),
    "fork": ("holdfast.cli.tasks.decisions:fork", "Begin anew with the tree that a turn left."),
    "snapshots": ("holdfast.cli.tasks.turns:snapshots", "List or export the snapshots of an attempt."),
    "resolve": ("holdfast.cli.tasks.decisions:resolve", "Decide what is parked or abandoned."),
    "pr": ("holdfast.cli.connections.pull_requests:pr", "Show the pull requests of tasks, and steer them."),
    "outbox": (
        "holdfast.cli.connections.outbox:outbox",
        "List the messages that have not left, and decide about them.",
    ),
    "notify": ("holdfast.cli.connections.notify:notify", "List the rules by which people are told, or try them."),
    "triggers": (
        "holdfast.cli.connections.triggers:triggers",
        "Rules that make tasks of what arrives: list, test, history, replay, enable.",
    ),
    "sync": ("holdfast.cli.connections.sync:sync", "Ask the issue trackers for changes."),
    "history": ("holdfast.cli.journal:history", "Show a task's whole story from the journal."),
    "log": ("holdfast.cli.journal:log", "Show the journal, filtered, followed, or as of a moment."),
    "agents": ("holdfast.cli.agents:agents", "List the agents: installed, signed in, what each can do."),
    "plugins": ("holdfast.cli.plugins:plugins", "List the installed plugins; enable or disable one."),
    "doctor": ("holdfast.cli.checks.doctor:doctor", "Look for what is wrong, and say what to type."),
    "gc": ("holdfast.cli.checks.gc:gc", "Remove what is of no use any more."),
    "check": ("holdfast.cli.checks.check_seal_prove:check", "Prove that everything fits together."),
    "seal": ("holdfast.cli.checks.check_seal_prove:seal", "Seal the audit log."),
    "prove": ("holdfast.cli.checks.check_seal_prove:prove", "Prove one audit record, or check such a proof."),
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, function = COMMANDS[name][0].partition(":")
        command = getattr(importlib.import_module(module), function)
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completes from the table: the group's own way would import every command to ask for its line of help."""
        from click.shell_completion import CompletionItem

        names = [CompletionItem(name, help=COMMANDS[name][1]) for name in COMMANDS if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="holdfast", message="%(prog)s %(version)s")
@click.option("--data-root", metavar="FOLDER", help="Where the state is kept, if not in .sdd/ of the repository.")
@click.pass_context
def holdfast(ctx: click.Context, data_root: str | None) -> None:
    """Runs CLI coding agents over a backlog of tasks in a git repository, verifies what they made, and lands it.

    Kill anything, at any instant, and start again in the same folder: nothing that was acknowledged is lost, and no
    side effect is blindly repeated.
    """
    ctx.obj = data_root


def run(arguments: Sequence[str] | None = None) -> None:
    given = sys.argv[1:] if arguments is None else list(arguments)
    if "_HOLDFAST_COMPLETE" in os.environ:
        holdfast.main(given, "holdfast")  # a shell asks for completion, which is answered in there
    code: str | int | None = 0
    try:
        # Not by click's `main`, which has its own view of a closed pipe and of exit codes.
        try:
            # A copy: reading the words takes them out of the list.
            with holdfast.make_context("holdfast", list(given)) as ctx:
                holdfast.invoke(ctx)
        except click.exceptions.Exit as ended:
            code = ended.exit_code
        except SystemExit as ended:
            code = ended.code
        sys.stdout.flush()
    except (HoldfastError, click.ClickException, click.Abort, KeyboardInterrupt, OSError) as error:
        from holdfast.cli.errors import print_error, wants_json

        code = print_error(error, wants_json(given))
    sys.exit(code)
