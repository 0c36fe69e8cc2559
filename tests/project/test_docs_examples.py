"""What README and docs tell people to type can be typed: each command and option is there, and examples work.

Examples are the lines of fenced blocks that begin with `holdfast`, the code spans in the text, and the end of `--help`.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from holdfast.cli.commands import COMMANDS
from holdfast.cli.commands import holdfast as group
from holdfast.config.layers import load
from kit import TOP
from kit.git import git
from kit.program import holdfast, type_in
from kit.project import add, layout, make_repo, sound, state
from kit.server import served
from kit.shell import steps_of

DOCS = TOP / "docs"
PAGES = [TOP / "README.md", *sorted(DOCS.glob("*.md"))]
# Their tasks are made on the page itself: `test_docs_blocks` types all of them, in order.
RUN_WHOLE = [TOP / "README.md", DOCS / "tutorial.md"]
# The page on agents names options of the agents' programs, too.
OUR_OPTIONS = [page for page in PAGES if page.name not in ("agents.md", "benchmarks.md", "security.md")]
# They only look, and end by themselves.
LOOKS = {
    "list", "status", "show", "gates", "hooks", "history", "turns", "diff", "check", "agents", "gc", "snapshots",
    "prompt", "log", "doctor", "watch", "attach", "seal", "questions",
}  # fmt: skip
# Commands whose examples are only parsed here, with the test that runs the command for what the example needs.
RUN_ELSEWHERE = {
    "demo": "tests/demo/test_demo.py",
    "init": "tests/cli/test_first_minute.py",
    "add": "tests/cli/test_tasks.py",
    "run": "tests/project/test_docs_blocks.py",
    "serve": "tests/server/test_openapi.py",
    "stop": "tests/decisions/test_stops.py",
    "edit": "tests/cli/test_tasks.py",
    "promote": "tests/decisions/test_decisions.py",
    "answer": "tests/decisions/test_questions.py",
    "ask": "tests/decisions/test_questions.py",
    "tell": "tests/decisions/test_conversations.py",
    "take": "tests/decisions/test_takeovers.py",
    "give-back": "tests/decisions/test_takeovers.py",
    "resolve": "tests/decisions/test_resolve.py",
    "review": "tests/decisions/test_reviews.py",
    "mcp": "tests/mcp/test_stdio.py",
    "reassign": "tests/decisions/test_reassignment.py",
    "prove": "tests/checks/test_check.py",
    "sync": "tests/integrations/test_trackers.py",
    "outbox": "tests/integrations/test_outbox.py",
    "notify": "tests/integrations/test_notify_sending.py",
    "pr": "tests/integrations/pull_requests/test_pull_requests.py",
    "triggers": "tests/integrations/triggers/test_schedules.py",
    "plugins": "tests/integrations/test_example.py",
}
# Examples of a command that looks which need something of their own: they never end, or name an entry.
LOOKS_ELSEWHERE = {
    "log --follow": "tests/cli/test_journal.py",
    "log --at": "tests/cli/test_journal.py",
    "check --repair": "tests/checks/test_check.py",
    "diff --since-review": "tests/cli/test_review.py",
}


def fences(text: str) -> Iterator[str]:
    """The lines of fenced blocks; one that goes on behind a backslash counts as one."""
    for block in re.findall(r"^```[a-z]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        yield from re.sub(r" *\\\n> *", " ", block).splitlines()


def place_of(page: Path) -> str:
    return str(page.relative_to(TOP))


def example(line: str) -> list[str] | None:
    """The words behind `holdfast` of a line that can be typed, up to a remark or a pipe; None for a usage line."""
    found = re.match(r"\s*(?:\$ )?holdfast (?P<rest>.+)", line)
    if found is None or "[OPTIONS]" in line or "TASK|ATTEMPT" in line:
        return None
    words = words_of(found["rest"])
    # A line of output may begin with the name, too.
    return words if words[0] in COMMANDS or words[0].startswith("-") else None


def words_of(line: str) -> list[str]:
    """Up to the first remark or pipe that stands in no quotes."""
    for found in re.finditer(r"\s+#\s|\s{2,}|\s(?:[|<>]|&&)\s|$", line):
        try:
            return shlex.split(line[: found.start()])
        except ValueError:
            continue
    raise ValueError(f"quotes are left open: {line}")


def examples(page: Path) -> list[list[str]]:
    return [words for line in fences(page.read_text()) if (words := example(line)) and not line.endswith("Sound.")]


def spans(page: Path, begin: str) -> list[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.findall(rf"`({begin}[^`\n]*)`", text)


def command_of(words: list[str]) -> tuple[click.Command, list[str], click.Context]:
    ctx = click.Context(group, info_name="holdfast")
    command = group.get_command(ctx, words[0])
    assert command is not None, f"there is no command {words[0]}"
    while isinstance(command, click.Group) and len(words) > 1:
        ctx, words = click.Context(command, parent=ctx, info_name=words[0]), words[1:]
        command = command.get_command(ctx, words[0])
        assert command is not None, f"there is no command {words[0]}"
    return command, words[1:], ctx


def parse(words: list[str]) -> None:
    """Raises where the words cannot be used; nothing is carried out."""
    command, rest, parent = command_of(words)
    try:
        command.make_context(words[0], list(rest), parent=parent)
    except click.exceptions.Exit:
        return


def options_of(command: click.Command) -> set[str]:
    ctx = click.Context(command, **group.context_settings)
    return {name for each in command.get_params(ctx) for name in (*each.opts, *each.secondary_opts)}


EVERY_OPTION = {
    name for command in (group, *(command_of([each])[0] for each in COMMANDS)) for name in options_of(command)
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files are that examples name."""
    for name in ("proof.json", "new.yaml", "comments.json"):
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=place_of)
def test_examples_can_be_typed(page: Path, folder: Path) -> None:
    for words in examples(page):
        try:
            parse(words)
        except click.ClickException as error:
            pytest.fail(f"{page.name}: holdfast {shlex.join(words)}: {error.format_message()}")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_help_can_be_typed(name: str, folder: Path) -> None:
    command = command_of([name])[0]
    told = f"{command.help or ''}\n{command.epilog or ''}"
    lines = [each for line in told.replace("\b", "").splitlines() for each in re.split(r" · |Examples?:", line)]
    found = [words for line in lines if (words := example(re.sub(r"^\s*cd \S+ && ", "", line)))]
    assert found, f"`holdfast {name} --help` has no example"
    for words in found:
        parse(words)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_answer_in_json_and_describes_its_options(name: str) -> None:
    command = command_of([name])[0]
    inner = command.commands.values() if isinstance(command, click.Group) else [command]
    assert [each.name for each in inner if "--json" not in options_of(each)] == []
    options = [option for each in inner for option in each.params if isinstance(option, click.Option)]
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("page", PAGES, ids=place_of)
def test_commands_in_the_text_are_there_with_their_options(page: Path) -> None:
    for span in spans(page, "holdfast "):
        words = re.sub(r"[\[\]…|]", " ", span).split()[1:]
        command, rest, _ = command_of(words) if words[0] in COMMANDS else (group, words, None)
        unknown = {word for word in rest if word.startswith("-") and word != "-"} - options_of(command)
        assert not unknown, f"{page.name}: `{span}` has options that there are not: {unknown}"


@pytest.mark.parametrize("page", OUR_OPTIONS, ids=place_of)
def test_options_in_the_text_are_there(page: Path) -> None:
    named = {word for span in spans(page, "--") for word in span.split() if word.startswith("--")}
    assert named - EVERY_OPTION == set()


def test_the_backlog_of_how_to_can_be_typed_as_it_stands(tmp_path: Path) -> None:
    """Up to the run, which would need an agent with an account."""
    repo = make_repo(tmp_path)
    part = (DOCS / "how-to.md").read_text().partition("## Work on a backlog")[2]
    typed = [words for line in fences(part) if (words := example(line))]
    typed = typed[: typed.index(["run"])]
    assert [words[0] for words in typed] == ["init", "add", "add", "list"]
    for words in typed:
        said = type_in(repo, *words)
        assert said.returncode == 0, f"{words}: {said.stdout}{said.stderr}"
    assert "login" in said.stdout and "docs" in said.stdout
    carried = re.search(r"^git (add .+)$", part, re.MULTILINE)
    assert carried is not None
    git(repo, *carried[1].split())
    assert ".sdd/backlog/open/login.yaml" in git(repo, "diff", "--cached", "--name-only")


def test_the_settings_of_the_page_are_settings(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    block = re.search(r"^```yaml\n(.*?)^```", (DOCS / "configuration.md").read_text(), re.DOTALL | re.MULTILINE)
    assert block is not None
    layout(repo).settings.write_text(block[1])
    config = load(repo, environ={}).config
    assert (config.max_agents, [gate.name for gate in config.gates]) == (8, ["test", "lint"])


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository in which the tasks of the examples have been worked on."""
    repo = make_repo(tmp_path_factory.mktemp("worked"))
    for name in ("login", "parser", "fix-login"):
        add(repo, name, "\n".join(f"append {name}.txt {number}" for number in range(1, 5)), verify=["true"])
    holdfast(repo, "run")
    return repo


def only_looks(words: list[str]) -> bool:
    return words[0] in LOOKS and not any(f"{words[0]} {word}" in LOOKS_ELSEWHERE for word in words)


def test_examples_that_only_look_do_what_they_say(worked: Path, tmp_path: Path) -> None:
    tried = 0
    for page in [each for each in PAGES if each not in RUN_WHOLE]:
        for words in filter(only_looks, examples(page)):
            typed = [word.replace("/tmp/then", str(tmp_path / "then")) for word in words]
            said = type_in(worked, *typed, environ={"HOME": str(worked.parent)})
            # `doctor` finds that no agent is installed here.
            assert said.returncode in ((0, 20) if words[0] == "doctor" else (0,)), f"{page.name}: {words}: {said}"
            tried += 1
    assert tried > 30 and list((tmp_path / "then").iterdir())


# What the examples of docs/cli.md are typed for, one after the other; a run works between them.
DECIDED = ["reject", "retry", "run", "reject", "undo", "resume", "run", "approve", "run", "fork", "cancel"]


@pytest.mark.heavy
def test_examples_that_decide_do_what_they_say(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    decides = {words[0]: words for words in examples(DOCS / "cli.md")}
    script = "\n".join(f"append parser.txt {number}" for number in range(1, 5))
    add(repo, "parser", script, verify=["true"], approve=True)
    holdfast(repo, "run", code=20)
    for name in DECIDED:
        if name == "run":
            holdfast(repo, "run", code=None)
        else:
            # The task that `fork` made is the one left to cancel.
            holdfast(
                repo, *["parser-by-hand" if name == "cancel" and word == "parser" else word for word in decides[name]]
            )
    assert {task: str(each.state) for task, each in state(repo).tasks.items()} == {
        "parser": "CLOSED",
        "parser-by-hand": "CANCELLED",
    }
    sound(repo)


def test_examples_that_need_a_server_do_what_they_say(tmp_path: Path) -> None:
    with served(make_repo(tmp_path)) as server:
        shown = holdfast(server.repo, "dashboard")
        assert server.address.url in shown and server.address.token in shown
        steps = [step.command for step in steps_of((DOCS / "api.md").read_text())]
        assert len(steps) == 3 and all(shutil.which(program) for program in ("curl", "jq"))
        done = subprocess.run(
            ["bash", "-ec", "\n".join(steps)], cwd=server.repo, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 and "Mend the login" in done.stdout, done
        assert [str(task.state) for task in state(server.repo).tasks.values()] == ["OPEN"]


def test_every_example_is_run_by_a_test() -> None:
    for page in [each for each in PAGES if each not in RUN_WHOLE]:
        for words in examples(page):
            assert words[0] in LOOKS | RUN_ELSEWHERE.keys() | {*DECIDED, "dashboard"}, f"{page.name}: {words}"
    for example_of, place in {**RUN_ELSEWHERE, **LOOKS_ELSEWHERE}.items():
        source = (TOP / place).read_text()
        assert all(f'"{word}"' in source or f" {word}" in source for word in example_of.split()), (
            f"{example_of}: {place}"
        )


@pytest.mark.parametrize("words", [["list", "--no-such-option"], ["no-such-command"], ["show"]])
def test_the_check_can_say_no(words: list[str]) -> None:
    with pytest.raises((click.ClickException, AssertionError)):
        parse(words)


@pytest.mark.parametrize("page", [*PAGES, TOP / "ARCHITECTURE.md", TOP / "CONTRIBUTING.md"], ids=place_of)
def test_links_lead_to_files_and_headings_that_are_there(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("http:", "https:")):
            continue
        name, _, heading = target.partition("#")
        found = page.parent / name if name else page
        assert found.exists(), f"{place_of(page)} leads to {target}, which is not there"
        assert not heading or heading in anchors(found), f"{place_of(page)}: {name} has no heading #{heading}"


def anchors(page: Path) -> set[str]:
    """As a Git forge makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_the_index_has_a_line_for_every_page() -> None:
    lines = (DOCS / "README.md").read_text().splitlines()
    listed = [found[1] for line in lines if (found := re.match(r"- \[\S+\]\((\S+)\): \S", line))]
    assert sorted(name for name in listed if "/" not in name) == sorted(
        page.name for page in PAGES if page.parent == DOCS and page.name != "README.md"
    )


def test_the_glossary_names_files_that_are_there() -> None:
    rows = re.findall(r"^\| (?!word|-)(.+?) \| (.+) \| `(.+)` \|$", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert len(rows) > 50 and len({word for word, _, _ in rows}) == len(rows)
    assert [file for _, _, file in rows if not (TOP / "src/holdfast" / file).is_file()] == []


def test_the_readme_fits_its_limit() -> None:
    assert len((TOP / "README.md").read_text().splitlines()) <= 120


@pytest.mark.parametrize("number", [0, 1])
def test_the_python_of_how_to_runs(number: int, worked: Path, tmp_path: Path) -> None:
    """The first block reads a journal of Holdfast's, the second writes one of its own"""
    source = re.findall(r"^```python\n(.*?)^```", (DOCS / "how-to.md").read_text(), re.DOTALL | re.MULTILINE)[number]
    folder = worked if number == 0 else tmp_path
    done = subprocess.run([sys.executable, "-c", source], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ("task_closed" in done.stdout) if number == 0 else list((tmp_path / "wal").iterdir())
