"""Every path of the data root, and whether each is durable.

- `durable`: the truth, or part of it. Losing it loses something.
- `projection`: derived from what is durable. It can be deleted, and is built again.
- `ephemeral`: useful to living processes only.

Where the root itself is: `locate`. This module names and checks; it writes nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, overload

from holdfast.errors import InvalidName, PathEscapes

Durability = Literal["durable", "projection", "ephemeral"]


@dataclass(frozen=True)
class PathEntry:
    """One name below the root. Read on a `Layout` it is a path; read on the class it is this row."""

    relative: str
    durability: Durability
    on_demand: bool = False

    @property
    def is_folder(self) -> bool:
        """Folders are written with a slash at the end, and exist from the start unless made `on_demand`."""
        return self.relative.endswith("/")

    @overload
    def __get__(self, layout: None, owner: type) -> PathEntry: ...
    @overload
    def __get__(self, layout: Layout | Attempt, owner: type) -> Path: ...
    def __get__(self, layout: Layout | Attempt | None, owner: type) -> PathEntry | Path:
        return self if layout is None else layout.root / self.relative


@dataclass(frozen=True)
class Attempt:
    """The folder of one attempt. Its runner writes all of it but the projections and the verdict."""

    root: Path

    process = PathEntry("process.json", "durable")
    alive = PathEntry("alive.lock", "durable")
    exit = PathEntry("exit.json", "durable")
    output = PathEntry("output.log", "durable")
    turns = PathEntry("turns.jsonl", "durable")
    traces = PathEntry("traces.jsonl", "durable")
    spend = PathEntry("spend.jsonl", "durable")
    provenance = PathEntry("provenance.jsonl", "durable")
    events = PathEntry("events.jsonl", "durable")
    questions = PathEntry("questions.jsonl", "durable")
    told = PathEntry("told.jsonl", "durable")
    inbox = PathEntry("inbox.json", "projection")
    verdict = PathEntry("verdict.json", "durable")
    gates_lock = PathEntry("gates.lock", "durable")
    gates_begun = PathEntry("gates-begun.json", "durable")
    hooks = PathEntry("hooks.json", "durable")
    hooks_lock = PathEntry("hooks.lock", "durable")
    hook_now = PathEntry("hook-now.json", "ephemeral")
    state = PathEntry("state.json", "projection")
    prompt = PathEntry("prompt.txt", "ephemeral")
    agent = PathEntry("agent/", "ephemeral", on_demand=True)
    # Questions of the agent's own, by `holdfast ask`, and their answers.
    asks = PathEntry("asks/", "ephemeral", on_demand=True)
    # The same by the API, which the sandbox shows to the agent and does not let it write.
    tool_asks = PathEntry("tool-asks/", "ephemeral", on_demand=True)
    # One file for each answer that a living runner waits for.
    answers = PathEntry("answers/", "ephemeral", on_demand=True)
    stop = PathEntry("stop", "ephemeral")

    def start(self, number: int) -> Path:
        """Durable. Its creator owns the start with this number: the runner or recovery."""
        return self.root / f"start-{number}"


@dataclass(frozen=True)
class Layout:
    root: Path

    format_file = PathEntry("format.json", "durable")
    config = PathEntry("config/", "durable")
    settings = PathEntry("config/settings.yaml", "durable")
    triggers = PathEntry("config/triggers.yaml", "durable")
    mcp_servers = PathEntry("config/mcp_servers.yaml", "durable")
    prompt_template = PathEntry("config/prompt.md", "durable")
    backlog = PathEntry("backlog/", "durable")
    backlog_open = PathEntry("backlog/open/", "durable")
    backlog_claimed = PathEntry("backlog/claimed/", "durable")
    backlog_closed = PathEntry("backlog/closed/", "durable")
    backlog_failed = PathEntry("backlog/failed/", "durable")
    backlog_issues = PathEntry("backlog/issues/", "durable")
    attempts = PathEntry("attempts/", "durable")
    cas = PathEntry("cas/", "durable")
    # A bare git repository of our own; see snapshots/store.py.
    snapshots = PathEntry("snapshots.git/", "durable", on_demand=True)
    audit = PathEntry("audit/", "durable")
    seals = PathEntry("audit/merkle/", "durable")
    metrics = PathEntry("metrics/", "projection")
    metrics_tasks = PathEntry("metrics/tasks.jsonl", "projection")
    metrics_snapshots = PathEntry("metrics/snapshots.jsonl", "projection")
    metrics_position = PathEntry("metrics/position.json", "projection")
    sessions = PathEntry("sessions.jsonl", "projection")
    runtime = PathEntry("runtime/", "ephemeral")
    lock = PathEntry("runtime/lock", "ephemeral")
    place = PathEntry("runtime/root.json", "ephemeral")
    backlog_lock = PathEntry("runtime/backlog.lock", "ephemeral")
    # Tokens and keys: no sandbox shows this folder.
    secret = PathEntry("runtime/secret/", "ephemeral", on_demand=True)
    server = PathEntry("runtime/secret/server.json", "ephemeral")
    server_key = PathEntry("runtime/secret/server.key", "ephemeral")
    server_page = PathEntry("runtime/secret/open.html", "ephemeral")
    # Where the run that owns the root is asked for decisions.
    decisions = PathEntry("runtime/secret/decisions.sock", "ephemeral")
    server_port = PathEntry("runtime/server.port", "ephemeral")
    traces = PathEntry("runtime/traces.json", "ephemeral")
    told = PathEntry("runtime/told.json", "ephemeral")
    # How far each follower of the journal has come.
    cursors = PathEntry("runtime/cursors/", "durable", on_demand=True)
    # What each issue tracker last said: etags and limits. Without it everything is asked for again.
    trackers = PathEntry("runtime/trackers/", "projection", on_demand=True)
    # One empty file for each attempt whose agent's files hold a secret.
    agent_secrets = PathEntry("runtime/agent-secrets/", "ephemeral", on_demand=True)
    signals = PathEntry("runtime/signals/", "ephemeral")
    logs = PathEntry("runtime/logs/", "ephemeral")
    tasks = PathEntry("runtime/tasks.jsonl", "projection")
    wal = PathEntry("runtime/wal/", "durable")
    wal_archive = PathEntry("runtime/wal/archive/", "durable")
    idempotency = PathEntry("runtime/wal/idempotency.jsonl", "projection")
    uncommitted = PathEntry("runtime/wal/uncommitted.idx.json", "projection")
    objects_read = PathEntry("runtime/objects-read", "ephemeral")
    worktrees = PathEntry("worktrees/", "durable")
    quarantine = PathEntry("quarantine/", "durable")
    memory = PathEntry("memory/", "durable", on_demand=True)
    plans = PathEntry("plans/", "durable", on_demand=True)
    cache = PathEntry("cache/", "ephemeral", on_demand=True)

    @property
    def definitions(self) -> Path:
        """The cache of parsed task files."""
        return self.cache / "definitions.json"

    def attempt(self, attempt: str) -> Path:
        return self.inside("attempts", _one_name("The attempt id", attempt))

    def attempt_files(self, attempt: str) -> Attempt:
        return Attempt(self.attempt(attempt))

    def cursor(self, follower: str) -> Path:
        """How far a follower of the journal has come."""
        return self.inside("runtime", "cursors", f"{_one_name('The follower', follower)}.json")

    def tracker(self, source: str) -> Path:
        return self.inside("runtime", "trackers", f"{_one_name('The source', source)}.json")

    def worktree(self, task: str) -> Path:
        return self.inside("worktrees", _one_name("The task id", task))

    def within(self, repo: Path) -> tuple[str, ...]:
        """The root as a path in a repository; none where it lies elsewhere."""
        root, top = self.root.resolve(), repo.resolve()
        return (str(root.relative_to(top)),) if root != top and root.is_relative_to(top) else ()

    def inside(self, *parts: str) -> Path:
        """Joins relative names below the root; refuses any that leads out of it, also through a symlink."""
        names = [name for part in parts for name in part.split("/")]
        if not all(_is_plain(name) for name in names) or not names:
            raise PathEscapes(name="/".join(parts), root=self.root)
        path = self.root.joinpath(*names)
        # Plain names without a symlink among them cannot lead out. This is called for every attempt, all the time.
        below = str(self.root)
        if any(os.path.islink(below := f"{below}/{name}") for name in names):
            real, top = os.path.realpath(path), os.path.realpath(self.root)
            if os.path.commonpath([real, top]) != top:
                raise PathEscapes(name="/".join(parts), root=self.root)
        return path


def _entries(owner: type) -> tuple[PathEntry, ...]:
    return tuple(entry for entry in vars(owner).values() if isinstance(entry, PathEntry))


ENTRIES: tuple[PathEntry, ...] = _entries(Layout)
ATTEMPT_ENTRIES: tuple[PathEntry, ...] = _entries(Attempt)
FOLDERS: tuple[PathEntry, ...] = tuple(entry for entry in ENTRIES if entry.is_folder and not entry.on_demand)
DURABILITY: dict[str, Durability] = {entry.relative: entry.durability for entry in ENTRIES}


def _one_name(what: str, name: str) -> str:
    if "/" in name:
        raise InvalidName(what=what, name=name, rule="it must be one name, without a slash")
    return name


def _is_plain(name: str) -> bool:
    """True for a name that a folder can hold: not empty, not `.` or `..`, nothing that the kernel refuses."""
    try:
        return name not in ("", ".", "..") and b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        return False


# -- where the root is ------------------------------------------------------------------------------------------------

HOME_VARIABLE = "HOLDFAST_HOME"


def locate(
    repo: Path,
    *,
    option: str | None = None,
    environ: Mapping[str, str] | None = None,
    configured: str | None = None,
) -> Layout:
    """The data root of a repository, from its arguments alone, without any I/O.

    `repo` is the real path of the repository's top folder, and its identity among those that share a root. A path that
    begins with `~/` is below HOME; `configured` may be relative to the repository, where it is written. The others must
    be absolute, so that the current folder never decides where the state is.
    """
    if not repo.is_absolute():
        raise InvalidName(what="The repository", name=str(repo), rule="its path must be absolute")
    # An empty variable counts as not set, as everywhere in Unix; an empty option or setting is a mistake.
    environ = environ or {}
    if option is not None:
        source, text = "--data-root", option
    elif variable := environ.get(HOME_VARIABLE):
        source, text = HOME_VARIABLE, variable
    elif configured is not None:
        source, text = "data_root", configured
    else:
        return Layout(repo / ".sdd")
    home = environ.get("HOME", "")
    shared = Path(home, text[2:]) if home and text.startswith("~/") else Path(text)
    if source == "data_root" and text:
        shared = repo / shared
    if not shared.is_absolute() or "\0" in text:
        rule = "it must be an absolute path, or begin with ~/ where HOME is set"
        raise InvalidName(what=f"The data root of {source}", name=text, rule=rule)
    return Layout(shared / slug(str(repo)))


# -- one folder name for any text -------------------------------------------------------------------------------------

SLUG_LENGTH_MAX = 200
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.")
_SLUG_PART = re.compile(r"=([0-9a-f]{2})|_([a-z_])|(\+)|([a-z0-9.-])")


def slug(name: str) -> str:
    """A folder name for any text: different texts have different ones, even if case is ignored.

    Lower-case letters, digits, dots and dashes stay; `/` is `+`, `A` is `_a`, `_` is `__`, all else `=` and two
    hexadecimal digits for each byte. No slug begins with a dot or a dash, or ends with a dot. `unslug` undoes it. A
    slug longer than 200 characters is cut, and ends with `~` and the text's SHA-256: it can no longer be undone, and
    differs from every other one as surely as that hash does.
    """
    text = "".join(map(_slug_part, name)) or "="
    if text[0] in ".-":
        text = _hexadecimal(text[0]) + text[1:]
    if text[-1] == ".":
        text = text[:-1] + _hexadecimal(".")
    if len(text) <= SLUG_LENGTH_MAX:
        return text
    import hashlib

    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{text[: SLUG_LENGTH_MAX - len(digest) - 1]}~{digest}"


def _slug_part(char: str) -> str:
    if char in _PLAIN:
        return char
    if char == "/":
        return "+"
    if char == "_" or (char.isascii() and char.isupper()):
        return "_" + char.lower()
    return _hexadecimal(char)


def _hexadecimal(char: str) -> str:
    return "".join(f"={byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))


def unslug(text: str) -> str:
    """The text of a slug."""
    found = b"".join(map(_unslug_part, _SLUG_PART.finditer(text)))
    try:
        name = found.decode("utf-8", "surrogatepass")
        is_slug = slug(name) == text
    except UnicodeDecodeError:
        is_slug = False
    if not is_slug:
        raise InvalidName(what="The slug", name=text, rule="no name has it, or its name was too long to be kept in it")
    return name


def _unslug_part(found: re.Match[str]) -> bytes:
    code, escaped, slash, plain = found.groups()
    if code:
        return bytes.fromhex(code)
    return (escaped.upper() if escaped else "/" if slash else plain).encode()
