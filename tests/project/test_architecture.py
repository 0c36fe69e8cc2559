"""The rules of the source that a reader relies on, checked on the source itself."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import rooms as rooms_page
from holdfast.cli.commands import COMMANDS
from rooms import MODULES, SOURCE, TOP, imports, line_of, parsed, room_of, rooms

# Behind ports: only the composition root, and commands that list them, know which there are.
ADAPTERS = {"agents", "agents.common", "agents.adapters", "agents.runner", "ledgers"}
# The version is read everywhere; doubles for tests stand beside the rooms and may use the door to the disk only.
ANYWHERE = {"__init__"}
TESTING = "testing"
# A ratchet: a room with more modules than the rest may only get smaller.
MODULES_MAX = 15
TOO_FULL = {"domain": 20}

LINES_MAX, FUNCTION_LINES_MAX = 400, 70
# A ratchet: an entry here may only get smaller, and goes when the file or function fits.
TOO_LONG: dict[str, int] = {}

DOOR = {"holdfast.storage.files.disk", "holdfast.storage.files.appender", "holdfast.storage.files.kernel"}
# Behind `disk`, through which all others have them.
INNER_PARTS = DOOR - {"holdfast.storage.files.disk"}
# Only the door, and the double that stands in for it, may take the system calls in hand.
MAY_USE_KERNEL = DOOR | {"holdfast.testing.recorder", "holdfast.testing.powercut"}
# Modules that write files by ways of their own.
FORBIDDEN_IMPORTS = {"mmap", "sqlite3", "zipfile", "tarfile", "shelve", "dbm", "tempfile", "fileinput"}
# What a pure room has no business with.
IMPURE = {
    "os", "io", "pathlib", "subprocess", "socket", "shutil", "time", "random", "threading", "asyncio", "signal", "sys",
}  # fmt: skip
# Nothing of the package may call these, by whatever name the module was imported.
FORBIDDEN_CALLS = {
    "os": {
        "write", "pwrite", "writev", "pwritev", "sendfile", "copy_file_range", "truncate", "ftruncate",
        "posix_fallocate", "fsync", "fdatasync", "sync", "rename", "renames", "replace", "link", "symlink", "unlink",
        "remove", "removedirs", "rmdir", "mkdir", "makedirs", "mkfifo", "mknod", "chmod", "chown", "utime",
        "fdopen", "system", "popen",
    },
    "shutil": {
        "copy", "copy2", "copyfile", "copyfileobj", "copytree", "move", "rmtree", "unpack_archive", "make_archive",
    },
    "tempfile": {
        "NamedTemporaryFile", "TemporaryFile", "TemporaryDirectory", "SpooledTemporaryFile", "mkdtemp", "mkstemp",
    },
}  # fmt: skip
FORBIDDEN_METHODS = {
    "write_text", "write_bytes", "touch", "unlink", "rmdir", "mkdir", "rename", "symlink_to", "hardlink_to", "chmod",
    "fsync", "fdatasync", "makedirs", "rmtree",
}  # fmt: skip
READING_FLAGS = {f"os.{name}" for name in ("O_RDONLY", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK")}
# Objects whose methods of the same name lead through the door.
THROUGH_THE_DOOR = {"disk", "staged", "kernel", "calls", "super", "structs"}


def breaches(module: str, source: str) -> Iterator[str]:
    """What is wrong with the imports of a module."""
    own = room_of(module)
    for name, line in imports(parsed(source), module):
        if name.split(".")[0] != "holdfast":
            continue
        if name not in MODULES:
            yield f"{module}:{line} imports {name}, which is no file"
            continue
        other = room_of(name)
        if other in ANYWHERE or own in {"__init__", "__main__"} or other == own:
            continue
        if own == TESTING:
            if other not in {"storage.files", "errors", "layout"}:
                yield f"{module}:{line}: {TESTING} may use the door to the disk only, not {name}"
            continue
        mine, theirs = line_of(own), line_of(other)
        if mine is None or theirs is None or theirs >= mine:
            yield f"{module}:{line} imports {name}, against the order of the rooms"
        if own in {"engine", "landing", "decisions", "orchestrator"} and other in ADAPTERS:
            yield f"{module}:{line}: {own} reaches adapters through ports, not by importing {name}"
        if own == "domain" and other == "layout":
            yield f"{module}:{line}: domain knows no paths"


def disk_writes(source: str) -> Iterator[str]:
    """Calls that write, sync or rename without going through the door."""
    tree = parsed(source)
    aliases = {"open": ("builtins", "open")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {alias.asname or alias.name: (alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            aliases |= {alias.asname or alias.name: (str(node.module), alias.name) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (found := _forbidden(node, aliases)):
            yield f"line {node.lineno}: {found}"
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name):
            module = aliases.get(node.value.id, ("", ""))[0]
            if module in ("os", "shutil") and node.attr in FORBIDDEN_CALLS[module]:
                yield f"line {node.lineno}: {module}.{node.attr}"
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [str(node.module)]
            yield from (f"line {node.lineno}: import of {name}" for name in names if name in FORBIDDEN_IMPORTS)


def _forbidden(call: ast.Call, aliases: dict[str, tuple[str, str]]) -> str:
    function = call.func
    if isinstance(function, ast.Name):
        module, name = aliases.get(function.id, ("", ""))
        if name in FORBIDDEN_CALLS.get(module, ()) or (module, name) == ("os", "open"):
            return f"{module}.{name}"
        return "open for writing" if function.id == "open" and _writes(call, 1) else ""
    if not isinstance(function, ast.Attribute):
        return ""
    owner = function.value
    owner_name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
    if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name):
        owner_name = owner.func.id
    module = aliases.get(owner_name, ("", ""))[0] if isinstance(owner, ast.Name) else ""
    if function.attr in FORBIDDEN_CALLS.get(module, ()):
        return f"{module}.{function.attr}"
    if module == "os" and function.attr == "open":
        flags = set(ast.unparse(call.args[1]).split(" | ")) if len(call.args) > 1 else set()
        return "" if "os.O_RDONLY" in flags and flags <= READING_FLAGS else "os.open for writing"
    if function.attr == "replace" and len(call.args) == 1 and not call.keywords and owner_name not in THROUGH_THE_DOOR:
        return ".replace() of a path"
    if function.attr == "open" and owner_name not in THROUGH_THE_DOOR and _writes(call, 1 if module else 0):
        return "open for writing"
    if function.attr in FORBIDDEN_METHODS and owner_name not in THROUGH_THE_DOOR and module not in MODULES:
        return f".{function.attr}()"
    return ""


def _writes(call: ast.Call, position: int) -> bool:
    """A mode that opens for writing; a mode that cannot be read here is taken for one when it is named as such."""
    named = [keyword.value for keyword in call.keywords if keyword.arg == "mode"]
    for given in named or call.args[position : position + 1]:
        if isinstance(given, ast.Constant):
            return isinstance(given.value, str) and bool(set(given.value) & set("wax+"))
        return bool(named) or isinstance(call.func, ast.Name)
    return False


def found_by(rule: Callable[[str], Iterable[str]], modules: Iterable[str]) -> list[str]:
    """Every breach of a rule, each with its module: one test for a rule tells all of them."""
    return [f"{module}: {breach}" for module in modules for breach in rule(MODULES[module].read_text())]


def test_imports_keep_the_order_of_the_rooms_and_lead_to_real_files() -> None:
    assert [breach for module, path in MODULES.items() for breach in breaches(module, path.read_text())] == []


def cycle(modules: Mapping[str, str]) -> list[str]:
    """Modules of which each imports the one before it, the last like the first; empty where there are none."""
    graph = {
        module: {name for name, _ in imports(parsed(source), module) if name in modules and name != module}
        for module, source in modules.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_modules_of_a_room_do_not_import_each_other() -> None:
    found = [cycle({module: MODULES[module].read_text() for module in modules}) for modules in rooms().values()]
    assert [each for each in found if each] == []


def test_the_check_of_cycles_can_say_no() -> None:
    one, other = "holdfast.engine.plan", "holdfast.engine.start"
    late = f"def f():\n    from {one} import plan"
    assert set(cycle({one: f"from {other} import start", other: late})) == {one, other}
    assert cycle({one: f"from {other} import start", other: ""}) == []


def test_a_room_is_no_warehouse() -> None:
    # What a reader sees at once: the modules of one folder. A large room has folders inside, each for one idea.
    folders = (module.rpartition(".")[0] for modules in rooms().values() for module in modules)
    count = Counter(folder.removeprefix("holdfast.") for folder in folders)
    assert {room: number for room, number in count.items() if number > TOO_FULL.get(room, MODULES_MAX)} == {}
    assert {room for room in TOO_FULL if count[room] <= MODULES_MAX} == set(), "it fits now"


def test_the_page_shows_the_rooms_as_they_are() -> None:
    assert rooms_page.main(["--check"]) == 0


def test_every_room_has_its_place() -> None:
    assert {room for room in rooms() if line_of(room) is None} == {TESTING, "__main__"}, "tools/rooms.py has the order"


# The docstring of a package: its purpose, and then what enters and leaves it and where to begin.
READ_FIRST = re.compile(r"\bRead `([\w/]+\.py)`")


def unexplained(said: str, folder: Path) -> list[str]:
    """What the docstring of a package leaves out."""
    purpose, _, rest = said.partition("\n\n")
    first = READ_FIRST.search(rest)
    return [
        *(["what it is for"] if not purpose else []),
        *(word for word in ("Enters: ", "Leaves: ") if word not in rest),
        *(["which file to read first"] if first is None or not (folder / first[1]).is_file() else []),
    ]


def test_every_package_says_what_it_is_for_and_where_to_begin() -> None:
    folders = [path.parent for path in SOURCE.rglob("__init__.py")]
    said = {folder: ast.get_docstring(parsed((folder / "__init__.py").read_text())) or "" for folder in folders}
    found = {str(folder.relative_to(SOURCE)): unexplained(text, folder) for folder, text in said.items()}
    assert {package: missing for package, missing in found.items() if missing} == {}


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ("", ["what it is for", "Enters: ", "Leaves: ", "which file to read first"]),
        ("Work.\n\nEnters: a. Leaves: b. Read `gone.py` first.", ["which file to read first"]),
        ("Work.\n\nLeaves: b. Read `plan.py` first.", ["Enters: "]),
        ("Work.\n\nEnters: a. Leaves: b. Read `plan.py` first.", []),
    ],
)
def test_the_check_of_packages_can_say_no(said: str, missing: list[str]) -> None:
    assert unexplained(said, SOURCE / "holdfast" / "engine") == missing


# They end like a participle, and are nouns.
NOUNS = {"feed", "landing", "listing", "routing", "serving", "tracing", "wiring", "wording"}
VERBS = {
    "ask", "attach", "create", "leave", "promote", "reassign", "recover", "redact", "restore", "serve", "show", "stop",
    "verify",
}  # fmt: skip
# A ratchet: an entry goes with its module's new name, and none is added.
STILL_NO_NOUNS = {
    "backlog.missing", "backlog.restore", "landing.verify", "storage.audit.verify", "storage.records.redact",
}  # fmt: skip


def is_noun(module: str) -> bool:
    """A module has the name of a thing. The module of a command has that of the command."""
    name = module.rpartition(".")[2]
    if room_of(module) == "cli" and name in COMMANDS:
        return True
    word = name.rpartition("_")[2]
    return word in NOUNS or not (word in VERBS or word.endswith(("ed", "ing")))


def test_modules_are_nouns() -> None:
    found = {module.removeprefix("holdfast.") for modules in rooms().values() for module in modules}
    assert {module for module in found if not is_noun(f"holdfast.{module}")} == STILL_NO_NOUNS


@pytest.mark.parametrize("name", ["decisions.create", "decisions.stop", "worktrees.confined", "processes.leaving"])
def test_the_check_of_nouns_can_say_no(name: str) -> None:
    assert not is_noun(f"holdfast.{name}")
    assert is_noun("holdfast.decisions.new_tasks") and is_noun("holdfast.cli.attach")


def test_a_public_class_name_exists_once() -> None:
    places: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in parsed(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_only_the_door_writes() -> None:
    # The points' log is a test's own, beside the data root, and must not pass the door that the test watches.
    assert found_by(disk_writes, MODULES.keys() - DOOR - {"holdfast.crashpoints"}) == []


def impurities(source: str) -> Iterator[str]:
    for name, line in imports(parsed(source), "domain"):
        if name.split(".")[0] in IMPURE:
            yield f"line {line}: import of {name}"
    for node in ast.walk(parsed(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("open", "print", "input")
        ):
            yield f"line {node.lineno}: {node.func.id}()"


def test_the_domain_does_no_input_and_no_output() -> None:
    assert (
        found_by(impurities, [name for name in MODULES if name.startswith(("holdfast.domain", "holdfast.questions"))])
        == []
    )


def test_only_the_door_makes_system_calls() -> None:
    def used(source: str) -> Iterator[str]:
        yield from (name for name, _ in imports(parsed(source), "") if name in INNER_PARTS)

    assert found_by(used, MODULES.keys() - MAY_USE_KERNEL) == []


# The format of the journal's files is known to these: `check` verifies the files themselves, and `repair` rebuilds what
# is made of them. Everybody else reads through `ports.LedgerReader`.
READS_FILES = {"holdfast.checks.projections", "holdfast.checks.repair"}
_FILE_FORMAT = {"Chain", "RunFile", "find", "forward", "backward"}


def files_read(source: str) -> Iterator[str]:
    """Names by which a module reads the files of the journal."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.ImportFrom) and node.module in (
            "holdfast.storage.journal.reader",
            "holdfast.storage.journal.pages",
        ):
            yield from (f"line {node.lineno}: {each.name}" for each in node.names if each.name in _FILE_FORMAT)
        elif isinstance(node, ast.ImportFrom) and node.module == "holdfast.storage.journal":
            modules = [each.name for each in node.names if each.name in ("reader", "pages")]
            yield from (f"line {node.lineno}: {name}" for name in modules)
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "checkpoint.recover":
            yield f"line {node.lineno}: checkpoint.recover"


def test_the_journal_is_read_through_the_ledger() -> None:
    rooms_of_files = ("holdfast.storage.", "holdfast.ledgers.")
    others = [name for name in MODULES if not name.startswith(rooms_of_files) and name not in READS_FILES]
    assert found_by(files_read, others) == []
    assert all(list(files_read(MODULES[name].read_text())) for name in READS_FILES), "an exception that is none"


@pytest.mark.parametrize(
    "source",
    [
        "from holdfast.storage.journal.reader import Chain",
        "from holdfast.storage.journal import pages",
        "from holdfast.storage.journal import checkpoint\nstate, found = checkpoint.recover(chain, files, State)",
    ],
)
def test_the_check_of_reading_can_say_no(source: str) -> None:
    assert list(files_read(source))


def other_clocks(source: str) -> Iterator[str]:
    """Places that ask for the time without asking our clock: a test that sets it would not reach them."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("time.time", "time.monotonic", "datetime.now"):
            yield f"line {node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield f"line {node.lineno}: import of names of time"


def test_the_time_is_asked_for_in_one_place() -> None:
    assert found_by(other_clocks, MODULES.keys() - {"holdfast.clock"}) == []


@pytest.mark.parametrize("source", ["import time; time.time()", "clock = time.monotonic", "from time import time"])
def test_the_check_for_other_clocks_can_say_no(source: str) -> None:
    assert list(other_clocks(source))


# A file of the program, of the tests or of the tools, and what may be named in it: `engine/plan.py:plan`.
NAMED = re.compile(r"`([\w./-]+\.py)(?::(\w+(?:\.\w+)?))?`")
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md")


def misnamed(page: str) -> Iterator[str]:
    """What a page names in backticks and is not there: files, functions, classes, methods, tables."""
    for path, name in NAMED.findall(page):
        file = next((place for top in (SOURCE / "holdfast", TOP) if (place := top / path).is_file()), None)
        if file is None or (name and name not in set(defined(parsed(file.read_text()).body))):
            yield f"{path}:{name}" if name else path


def defined(body: list[ast.stmt], within: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield within + node.name
        if isinstance(node, ast.ClassDef):
            yield from defined(node.body, f"{node.name}.")
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (within + target.id for target in targets if isinstance(target, ast.Name))


# Phrases that are read twice: relative clauses without a subject, passives without an actor.
PHRASES = re.compile(
    r"\bgone on with\b|\bfor who\b|\bwho (?:only )?(?:looks?|reads|asks|waits)\b|\bwhich there is not\b"
    r"|\bwho is there\b|\bwhoever\b|\bis told\b"
    # With its noun such a clause is plain: a person who works on it.
    r"|(?<!\bperson )(?<!\boutsider )(?<!\bnobody )\bwho (?:has|had|was|wrote|holds|works|appends|started)\b",
    re.IGNORECASE,
)


def phrases_by_room() -> Counter[str]:
    pages = [*(TOP / page for page in PAGES), *(TOP / "docs").glob("*.md"), TOP / "README.md", TOP / "CHANGELOG.md"]
    sources = (path for path in SOURCE.rglob("*") if path.suffix in (".py", ".js", ".html"))
    beside = (path for folder in ("tests", "tools", "bench") for path in (TOP / folder).rglob("*.py"))
    found: Counter[str] = Counter()
    for path in (*pages, *sources, *beside):
        found[page_or_room(path)] += len(PHRASES.findall(path.read_text()))
    return found


def page_or_room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[1] if path.is_relative_to(SOURCE) else path.name


def test_the_worst_phrases_do_not_come_back() -> None:
    assert {place: count for place, count in phrases_by_room().items() if count} == {}


# Cut by bars, because the rule reads this file, too.
@pytest.mark.parametrize("text", ["gone| on with", "for| who comes", "Who|ever", "it is| told", "by who| wrote it"])
def test_the_check_of_phrases_can_say_no(text: str) -> None:
    assert PHRASES.search(text.replace("|", ""))
    assert not PHRASES.search("a person who works on it, and an outsider who has no key")


@pytest.mark.parametrize("page", PAGES)
def test_every_name_on_a_page_exists(page: str) -> None:
    text = (TOP / page).read_text()
    assert len(NAMED.findall(text)) > 10, "it names nothing in this way"
    assert list(misnamed(text)) == []


@pytest.mark.parametrize(
    "name", ["engine/plans.py", "engine/plan.py:plans", "engine/board.py:Board.take_out", "plan.py"]
)
def test_the_check_of_names_can_say_no(name: str) -> None:
    assert list(misnamed(f"`{name}`")) == [name]
    assert list(misnamed("`engine/plan.py:plan` `engine/board.py:Board.take_in` `tests/kit/disks.py`")) == []


POSITIONAL_MAX = 5


def own_callables() -> set[str]:
    """Functions, methods and classes of ours. One that takes any number of arguments is for a command line."""
    found: set[str] = set()
    for path in MODULES.values():
        for node in ast.walk(parsed(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
    return found - any_number_of_arguments()


def any_number_of_arguments() -> set[str]:
    nodes = (node for path in MODULES.values() for node in ast.walk(parsed(path.read_text())))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.args.vararg}


def unnamed_arguments(source: str, own: set[str]) -> Iterator[str]:
    """Calls of our own in which a reader has to count; and defaults that are taken by their number."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Attribute) and node.attr == "__struct_defaults__":
            yield f"line {node.lineno}: {node.attr}"
        if isinstance(node, ast.Call) and len(node.args) > POSITIONAL_MAX:
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in own | {"cls"}:
                yield f"line {node.lineno}: {name} with {len(node.args)} positional arguments"


def test_a_call_names_its_arguments() -> None:
    own = own_callables()
    assert found_by(lambda source: unnamed_arguments(source, own), MODULES) == []
    assert list(unnamed_arguments("x.plan(1, 2, 3, 4, 5, 6)", own)) == ["line 1: plan with 6 positional arguments"]
    assert list(unnamed_arguments("Node.__struct_defaults__[2]", own)) == ["line 1: __struct_defaults__"]


def test_every_command_is_a_real_function() -> None:
    for place, _ in COMMANDS.values():
        module, _, function = place.partition(":")
        assert module in MODULES, place
        defined = [node.name for node in parsed(MODULES[module].read_text()).body if isinstance(node, ast.FunctionDef)]
        assert function in defined, place


def too_long(module: str, source: str) -> Iterator[str]:
    if (lines := len(source.splitlines())) > TOO_LONG.get(module, LINES_MAX):
        yield f"{module} has {lines} lines"
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > TOO_LONG.get(f"{module}.{node.name}", FUNCTION_LINES_MAX):
                yield f"{module}.{node.name} has {length} lines"


def test_files_and_functions_stay_short() -> None:
    assert [each for module, path in MODULES.items() for each in too_long(module, path.read_text())] == []
    assert list(too_long("holdfast.x", "def f():\n" + "    pass\n" * 500)) == [
        "holdfast.x has 501 lines",
        "holdfast.x.f has 501 lines",
    ]


def test_the_ratchet_holds_nothing_that_fits() -> None:
    assert all(limit > FUNCTION_LINES_MAX for limit in TOO_LONG.values())


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("holdfast.errors", "from holdfast.storage.files import disk"),
        ("holdfast.storage.files.disk", "import holdfast.cli.main"),
        ("holdfast.storage.files.disk", "from holdfast.storage.files.gone import x"),
        ("holdfast.testing.recorder", "from holdfast.cli import main"),
        ("holdfast.domain.state", "from holdfast import layout"),
        ("holdfast.engine.start", "from holdfast.agents.registry import agents"),
        ("holdfast.ledgers.files", "from holdfast.backlog import folder"),
    ],
)
def test_the_check_of_rooms_can_say_no(module: str, source: str) -> None:
    assert list(breaches(module, source))


@pytest.mark.parametrize(
    "source",
    [
        "import os; os.fsync(3)",
        "import os as o; o.rename('a', 'b')",
        "from os import replace; replace('a', 'b')",
        "open('a', 'w')",
        "open('a', mode='ab')",
        "from pathlib import Path; Path('a').open('w')",
        "from pathlib import Path; Path('a').write_text('b')",
        "path.unlink()",
        "import os; os.open('a', os.O_WRONLY)",
        "import shutil; shutil.rmtree('a')",
        "import tempfile; tempfile.mkdtemp()",
        "path.replace(other)",
        "from os import open; open('a', 1)",
        "import os; os.open('a', os.O_RDWR | os.O_RDONLY)",
        "import os; sync = os.fsync; sync(3)",
        "import os; os.fdopen(3, 'w')",
        "import os; os.system('rm a')",
        "import sqlite3",
        "import mmap",
    ],
)
def test_the_door_check_can_say_no(source: str) -> None:
    assert list(disk_writes(source))


@pytest.mark.parametrize(
    "source",
    ["open('a')", "open('a', 'rb')", "path.open()", "path.open('rb')", "import os; os.open('a', os.O_RDONLY)",
     "from holdfast.storage.files import disk; disk.unlink(path)", "text.replace('a', 'b')"],
)  # fmt: skip
def test_the_door_check_lets_reading_pass(source: str) -> None:
    assert list(disk_writes(source)) == []


@pytest.mark.parametrize("source", ["import os", "from pathlib import Path", "import time", "open('a')"])
def test_the_purity_check_can_say_no(source: str) -> None:
    assert list(impurities(source))
