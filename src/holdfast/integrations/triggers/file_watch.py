"""Changed files of the repository, as the kernel reports them while a run lives.

What changes while no run lives is not seen: git has it, and a push to GitHub or GitLab is the event for that.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from holdfast.domain.path_rules import outside
from holdfast.errors import SignatureRefused
from holdfast.integrations.triggers.event import (
    LIST_MAX,
    Delivery,
    Handshake,
    TriggerEvent,
    decode_object,
    names_at,
    text_at,
)

_SPECIAL = set("*?[")
# Never watched: git's own, and every data root.
_NEVER = {".git", ".sdd"}
_KINDS = {1: "added", 2: "modified", 3: "deleted"}


class FileWatchSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`paths`: globs from the top of the repository, as in a task's `paths`. `debounce_ms`: changes within so long
    are one event."""

    paths: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=500)], ...], Meta(min_length=1, max_length=100)]
    type: Literal["file_watch"] = "file_watch"
    debounce_ms: Annotated[int, Meta(ge=50, le=600_000)] = 1600


class FileWatchSource:
    settings_type: ClassVar[type[msgspec.Struct]] = FileWatchSettings
    hears: ClassVar[bool] = False
    body_bytes_max: ClassVar[int] = 0
    is_known_by_body = False

    def __init__(self, name: str, settings: FileWatchSettings) -> None:
        self.name, self.settings = name, settings
        self.ours: tuple[str, ...] = ()

    @property
    def kept_headers(self) -> tuple[str, ...]:
        return ()

    @property
    def secret_refs(self) -> tuple[str, ...]:
        return ()

    def verify(self, delivery: Delivery, secrets: Mapping[str, str], now: float) -> None:
        raise SignatureRefused(reason="watched files take no deliveries")

    def handshake(self, delivery: Delivery) -> Handshake | None:
        return None

    def answer(self, tasks: list[str]) -> dict[str, Any] | None:
        return None

    def normalise(self, delivery: Delivery) -> TriggerEvent:
        payload = decode_object(delivery.body)
        paths = names_at(payload, "changes", name="path")
        kinds = sorted(set(names_at(payload, "changes", name="how")))
        return TriggerEvent(
            source=self.name,
            kind=kinds[0] if len(kinds) == 1 else "changed",
            id=text_at(payload, "id") or delivery.digest,
            title=f"{len(paths)} changed: {', '.join(paths[:5])}"[:300],
            body="\n".join(paths)[:10_000],
            paths=paths,
            digest=delivery.digest,
            payload=payload,
        )

    def body_of(self, id: str, changes: Sequence[tuple[str, str]]) -> bytes:
        """`changes`: how, and the path."""
        listed = [{"how": how, "path": path} for how, path in changes[:LIST_MAX]]
        return msgspec.json.encode({"id": id, "changes": listed})


class WatchedFiles:
    """Reports changes that the source asks for, from threads of its own, between `open` and `close`."""

    def __init__(self, source: FileWatchSource, repo: Path, never: Sequence[Path]) -> None:
        self._source, self._repo = source, repo
        self._never = [*never, *(repo / name for name in _NEVER)]
        self._found: queue.SimpleQueue[list[tuple[str, str]] | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._is_open = False

    def take(self, wait_s: float) -> list[tuple[str, str]]:
        """The next changes together, how and path of each; none where none came in that time."""
        if not self._is_open:
            self._open()
        try:
            return self._found.get(timeout=wait_s) or []
        except queue.Empty:
            return []

    def close(self) -> None:
        self._stop.set()
        self._found.put(None)

    def _open(self) -> None:
        self._is_open = True
        below, tops = self._roots()
        for folders, recursive in ((below, True), (tops, False)):
            if folders:
                watching = threading.Thread(
                    target=self._watch, args=(folders, recursive), name=f"watch-{self._source.name}", daemon=True
                )
                watching.start()

    def _roots(self) -> tuple[list[Path], list[Path]]:
        """The folders to watch with all below them, and those without: never more of the repository than is asked."""
        below, tops = set(), set()
        for rule in self._source.settings.paths:
            parts = rule.removeprefix("./").strip("/").split("/")
            fixed = parts[: next((n for n, part in enumerate(parts) if _SPECIAL & set(part)), len(parts) - 1)]
            folder = self._repo.joinpath(*fixed)
            is_flat = len(parts) == len(fixed) + 1 and "/" in rule.strip("/") and parts[-1] != "**"
            if not fixed:
                tops.add(self._repo)
                if "/" not in rule.strip("/") or parts[0] == "**":
                    below |= {each for each in self._repo.iterdir() if self._is_watched(each)}
                elif (whole := self._repo / parts[0]).is_dir():
                    below.add(whole)
            elif folder.is_dir():
                (tops if is_flat and not (folder / parts[-1]).is_dir() else below).add(folder)
                if (folder / parts[-1]).is_dir():
                    below.add(folder / parts[-1])
        return sorted(below), sorted(tops - below)

    def _is_watched(self, path: Path) -> bool:
        return path.is_dir() and not path.is_symlink() and not any(path.is_relative_to(each) for each in self._never)

    def _watch(self, folders: list[Path], recursive: bool) -> None:
        from watchfiles import watch

        step = self._source.settings.debounce_ms
        for changes in watch(
            *folders,
            watch_filter=None,
            debounce=step,
            step=min(50, step),
            rust_timeout=500,
            stop_event=self._stop,
            recursive=recursive,
            raise_interrupt=False,
        ):
            found = sorted({(_KINDS[int(how)], os.path.relpath(path, self._repo)) for how, path in changes
                            if not any(Path(path).is_relative_to(each) for each in self._never)})  # fmt: skip
            apart = set(outside([path for _, path in found], self._source.settings.paths))
            if kept := [(how, path) for how, path in found if path not in apart]:
                self._found.put(kept)
