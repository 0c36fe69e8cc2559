"""OpenTelemetry traces, made of the journal: one for each attempt, with spans for its turns, its gates and its landing.

The ids of a trace and of its spans follow from the repository, the attempt and the hash of the journal's entry: a run
that finishes what a killed one began goes on with the same trace, and what is sent twice is the same span. A thread
follows the journal and notes how far it has sent; while nobody takes the spans, it waits, and the journal keeps them.

The libraries are an extra, and are loaded only when a collector's address is in the environment. It may stand there for
other programs: where they are not installed, there are no traces, and everything else goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast import __version__
from holdfast.domain import effect_entries, entries
from holdfast.domain.attempt_records import TurnLine
from holdfast.domain.fsm import Reason
from holdfast.errors import HoldfastError
from holdfast.landing.verify import GateVerdict, read_verdict
from holdfast.layout import Layout
from holdfast.ports import Ledger
from holdfast.server.observability.logs import ServerLog
from holdfast.storage.files import disk
from holdfast.storage.files.json_file import read_json
from holdfast.storage.journal import data_root
from holdfast.storage.journal.entry import Entry
from holdfast.storage.journal.writer import epoch_of, is_run_id
from holdfast.storage.records import ledger as jsonl
from holdfast.storage.records.blobs import Blobs
from holdfast.storage.records.redact import Scrubber

ADDRESSES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
BATCH_MAX = 512
GATHER_S = 0.5
TRY_AGAIN_S, TRY_AGAIN_S_MAX = 1.0, 60.0
PATIENCE_S = 3.0
NANOSECONDS = 1_000_000_000
# What ends an attempt, for good or until somebody goes on with it.
_ENDINGS = {"task_closed", "task_failed", "task_cancelled", "task_split", "task_blocked"}
_WRONG = {"task_failed", "task_cancelled"}
# Why a task is open again whose worker has it no more; other reasons are pauses of an agent that goes on by itself.
_LEFT = {Reason.CLAIM_RELEASED, Reason.HEARTBEAT_LOST}

_OTLP = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
_MISSING = (
    "{variable} asks for traces, and the libraries that send them are not here ({reason}). All else goes on without; "
    "install them with `pip install 'holdfast[otel]'`, or unset {variable}."
)

Send = Callable[[Sequence["Span"]], bool]


class Span(msgspec.Struct, frozen=True):
    """Times are Unix seconds. `parent` is 0 for the attempt's own span. `error`: why it went wrong, or empty."""

    trace: int
    span: int
    parent: int
    name: str
    start: float
    end: float
    facts: dict[str, Any]
    error: str = ""


class _Attempt(msgspec.Struct):
    """The attempt that a task is in. `last`: when it last did something. `is_told`: its span is out, up to then."""

    id: str
    began: float
    last: float
    is_told: bool = False


class Spans:
    """Takes all entries in order, and says which spans have ended with each."""

    def __init__(self, layout: Layout, repository: str) -> None:
        self._layout = layout
        self._repository = repository
        self._blobs = Blobs(layout.cas)
        self._under_way: dict[tuple[str, int], Entry] = {}
        # By task: the attempt that it is in; by attempt: where its last turn's line ended.
        self._attempts: dict[str, _Attempt] = {}
        self._offsets: dict[str, int] = {}

    def spans_of(self, run: str, entry: Entry, *, is_wanted: bool = True) -> list[Span]:
        """`is_wanted`: False while only what came before is learned."""
        kind, inputs = entry.decision_type, entry.inputs
        if kind == "task_claimed":
            spans = self._claim(run, entry)
        elif kind == "turn_completed":
            before = self._offsets.get(inputs["attempt"], 0)
            self._offsets[inputs["attempt"]] = inputs["end_offset"]
            self._live(entry)
            spans = [self._turn(run, entry, before)] if is_wanted else []
        elif not entry.committed:
            self._under_way[run, entry.seq] = entry
            spans = []
        elif kind in effect_entries.CLOSED_BY:
            self._live(entry)
            intent = self._under_way.pop((inputs["intent"]["run"], inputs["intent"]["seq"]), None)
            spans = self._effect(run, intent, entry) if intent is not None and is_wanted else []
        elif kind in _ENDINGS or (kind == "task_opened" and inputs["reason"] in _LEFT):
            spans = self._end(run, entry)
        else:
            spans = []
        return spans if is_wanted else []

    def _live(self, entry: Entry) -> None:
        known = self._attempts.get(entry.inputs["task"])
        if known is not None:
            known.last, known.is_told = entry.timestamp, False

    def _claim(self, run: str, entry: Entry) -> list[Span]:
        """Begins another attempt: the one before is over, also where nothing has said so."""
        task, attempt = entry.inputs["task"], entry.inputs["attempt"]
        known = self._attempts.get(task)
        if known is not None and known.id == attempt:
            self._live(entry)
            return []
        self._attempts[task] = _Attempt(attempt, entry.timestamp, entry.timestamp)
        if known is None:
            return []
        self._offsets.pop(known.id, None)
        facts = {"state": "OPEN", "reason": "another attempt was claimed"}
        return [] if known.is_told else [self._whole(run, task, known, known.last, facts)]

    def _turn(self, run: str, entry: Entry, before: int) -> Span:
        turn = entry.inputs
        line = self._line(turn["attempt"], before, turn["end_offset"])
        # The journal may have heard of it later, after a restart.
        end = line.ts if line is not None else entry.timestamp
        facts: dict[str, Any] = {name: turn[name] for name in ("turn", "usd", "tokens", "snapshot") if name in turn}
        if line is not None:
            facts |= {"tool": line.tool, "files": len(line.files), "start": line.start}
        return self._span(run, entry, "turn", end - turn.get("seconds", 0.0), end, facts=facts)

    def _line(self, attempt: str, before: int, end: int) -> TurnLine | None:
        """The turn's line as the runner wrote it; None where its folder is gone."""
        with contextlib.suppress(HoldfastError, OSError, msgspec.ValidationError):
            lines = jsonl.LineLedger(self._layout.attempt_files(attempt).turns).read(before)
            found = next((line for line in lines if line.cursor == end), None)
            return None if found is None else msgspec.convert(found.record, TurnLine)
        return None

    def _effect(self, run: str, intent: Entry, entry: Entry) -> list[Span]:
        effect, how = effect_entries.CLOSED_BY[entry.decision_type]
        verdict = self._verdict(entry) if effect == "verify" else None
        error = "" if how == "confirmed" else entry.inputs.get("reason", how)
        facts: dict[str, Any] = {"outcome": how}
        if verdict is not None:
            facts |= {"verdict": verdict.kind, "merged": verdict.merged}
            error = error or ("" if verdict.passed else verdict.detail)
        facts |= {name: intent.inputs[name] for name in ("branch", "old", "new") if name in intent.inputs}
        made = self._span(run, entry, effect, intent.timestamp, entry.timestamp, facts=facts, error=error)
        return [made, *(self._gates(made, entry, verdict) if verdict is not None else [])]

    def _verdict(self, entry: Entry) -> GateVerdict | None:
        with contextlib.suppress(HoldfastError, msgspec.DecodeError, msgspec.ValidationError):
            return read_verdict(self._blobs, str(entry.output["verdict"])) if entry.output.get("verdict") else None
        return None

    def _gates(self, verify: Span, entry: Entry, verdict: GateVerdict) -> list[Span]:
        """They ran one after the other, the last until the verdict."""
        spans: list[Span] = []
        end = verify.end
        for number, result in reversed(list(enumerate(verdict.results))):
            if result.outcome == "not_run":
                continue
            start = max(verify.start, end - result.seconds)
            facts = {name: verify.facts[f"holdfast.{name}"] for name in ("task", "attempt", "run")}
            facts = {"gate": result.name, "outcome": result.outcome, **facts}
            error = "" if result.outcome == "passed" else f"{result.outcome}, code {result.code}"
            name = _number(8, entry.entry_hash, "gate", str(number))
            spans.append(Span(verify.trace, name, verify.span, "gate", start, end=end, facts=_ours(facts), error=error))
            end = start
        return spans[::-1]

    def _end(self, run: str, entry: Entry) -> list[Span]:
        kind, moved = entry.decision_type, entry.inputs
        known = self._attempts.get(moved["task"])
        if known is None:
            return []
        if kind in ("task_closed", "task_cancelled"):
            del self._attempts[moved["task"]]
            self._offsets.pop(known.id, None)
        if known.is_told:
            # It was over before, and nobody has continued it.
            return []
        known.last, known.is_told = entry.timestamp, True
        outcome, state = moved.get("outcome", {}), entries.MOVES[kind].value
        error = f"{outcome.get('kind', state)}: {outcome.get('detail', '')}" if kind in _WRONG else ""
        facts = {"state": state, "reason": moved["reason"]}
        return [self._whole(run, moved["task"], known, entry.timestamp, facts, error=error)]

    def _whole(self, run: str, task: str, known: _Attempt, end: float, facts: dict[str, Any], error: str = "") -> Span:
        """The span of the attempt itself, which all others of it stand below."""
        told = _ours({"task": task, "attempt": known.id, "run": run, **facts})
        trace, top = self._trace(known.id), self._top(known.id)
        return Span(trace, top, 0, "attempt", known.began, end=end, facts=told, error=error)

    def _span(
        self, run: str, entry: Entry, name: str, start: float, end: float, facts: dict[str, Any], error: str = ""
    ) -> Span:
        known = self._attempts.get(entry.inputs["task"])
        attempt = entry.inputs.get("attempt") or (known.id if known is not None else "")
        told = _ours({"task": entry.inputs["task"], "attempt": attempt, "run": run, **facts})
        number = int(entry.entry_hash[:16], 16) or 1
        return Span(self._trace(attempt), number, self._top(attempt), name, start, end=end, facts=told, error=error)

    def _trace(self, attempt: str) -> int:
        return _number(16, self._repository, attempt)

    def _top(self, attempt: str) -> int:
        return _number(8, self._repository, attempt, "attempt")


def _number(size: int, *words: str) -> int:
    """An id of so many bytes; 0 would be none."""
    return int.from_bytes(hashlib.sha256("\0".join(words).encode()).digest()[:size]) or 1


def _ours(facts: dict[str, Any]) -> dict[str, Any]:
    """Under names that are nobody else's."""
    return {f"holdfast.{name}": value for name, value in facts.items()}


class SpanPlace(msgspec.Struct, frozen=True):
    """`runtime/traces.json`: the last entry whose spans were taken."""

    run: str
    seq: int


class Tracer:
    """The thread that follows the journal. It reads from its own place on, and an entry only wakes it."""

    name, cursor = "traces", None

    def __init__(self, layout: Layout, ledger: Ledger, send: Send, end: Callable[[], None], log: ServerLog) -> None:
        self._path = layout.traces
        self._ledger = ledger
        self._send, self._end, self._log = send, end, log
        self._spans = Spans(layout, data_root.read_format(layout).repository)
        self._sent = self._read_place()
        self._waiting: list[Span] = []
        self._last: SpanPlace | None = None
        self._news = threading.Event()
        self._closing = threading.Event()
        self._is_last_look = False
        self._thread = threading.Thread(target=self._serve, name="traces", daemon=True)
        self._thread.start()

    def observe(self, run: str, entry: Entry) -> None:
        self._news.set()

    def close(self) -> None:
        """Sends what there is, as long as somebody takes it at once; the rest is for the next run."""
        self._closing.set()
        self._news.set()
        self._thread.join(PATIENCE_S)
        self._end()
        self._thread.join(PATIENCE_S)

    def _serve(self) -> None:
        try:
            for ref, entry in self._ledger.watch(None, self._wait):
                is_wanted = (epoch_of(ref.run), ref.seq) > self._sent
                self._waiting += self._spans.spans_of(ref.run, entry, is_wanted=is_wanted)
                if is_wanted:
                    self._last = SpanPlace(ref.run, ref.seq)
                if len(self._waiting) >= BATCH_MAX and not self._flush():
                    return
        except HoldfastError as error:
            self._log.write("traces_stopped", "error", error=str(error))

    def _wait(self) -> bool:
        """All is read: sends it, and waits for more. False when there will be none."""
        if not self._flush() or self._is_last_look:
            return False
        self._news.wait()
        self._closing.wait(GATHER_S)
        self._news.clear()
        # What came until the very end is still to be read.
        self._is_last_look = self._closing.is_set()
        return True

    def _flush(self) -> bool:
        """Returns when all is taken; False when that will not be in this run."""
        again_s = TRY_AGAIN_S
        while self._waiting and not self._send(self._waiting):
            self._log.write("traces_not_taken", "warning", spans=len(self._waiting), again_s=again_s)
            if self._closing.wait(again_s):
                return False
            again_s = min(2 * again_s, TRY_AGAIN_S_MAX)
        if self._last is not None:
            disk.replace(self._path, msgspec.json.encode(self._last))
        self._waiting, self._last = [], None
        return True

    def _read_place(self) -> tuple[int, int]:
        """Behind which entry to begin: where there is no note, with the run that is alive."""
        place = read_json(self._path, SpanPlace)
        if place is not None and is_run_id(place.run):
            return epoch_of(place.run), place.seq
        # Noted at once: a run that is killed before it has sent anything begins here again.
        disk.replace(self._path, msgspec.json.encode(SpanPlace(self._ledger.run, -1)))
        return epoch_of(self._ledger.run), -1


def tracer(layout: Layout, ledger: Ledger, log: ServerLog, environ: Mapping[str, str] = os.environ) -> Tracer | None:
    """Sends traces from now on; None where nobody wants them, or they cannot be sent."""
    if not _wanted(environ):
        return None
    try:
        exporter = _Exporter(data_root.read_format(layout).repository, environ)
    except ImportError as error:
        log.write("traces_stopped", "warning", error=_missing_sentence(environ, error))
        return None
    return Tracer(layout, ledger, exporter.send, exporter.end, log)


def missing(environ: Mapping[str, str] = os.environ) -> str:
    """A sentence if the environment names a collector and the libraries are not installed; else empty."""
    if _wanted(environ):
        try:
            importlib.import_module(_OTLP)
        except ImportError as error:
            return _missing_sentence(environ, error)
    return ""


def _wanted(environ: Mapping[str, str]) -> str:
    """The variable that asks for traces, or empty."""
    is_off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return "" if is_off else next((name for name in ADDRESSES if environ.get(name)), "")


def _missing_sentence(environ: Mapping[str, str], error: ImportError) -> str:
    return _MISSING.format(variable=_wanted(environ), reason=error)


class _Exporter:
    """The libraries, behind the two things that are asked of them."""

    def __init__(self, repository: str, environ: Mapping[str, str]) -> None:
        import logging

        self._sdk = importlib.import_module("opentelemetry.sdk.trace")
        self._api = importlib.import_module("opentelemetry.trace")
        resources = importlib.import_module("opentelemetry.sdk.resources")
        scopes = importlib.import_module("opentelemetry.sdk.util.instrumentation")
        otlp = importlib.import_module(_OTLP)
        # They would tell the terminal what our log says already.
        logging.getLogger("opentelemetry").propagate = False
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        facts = {"service.version": __version__, "holdfast.repository": repository}
        if not environ.get("OTEL_SERVICE_NAME") and "service.name=" not in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
            facts["service.name"] = "holdfast"
        self._resource = resources.Resource.create(facts)
        self._scope = scopes.InstrumentationScope("holdfast", __version__)
        self._scrubber = Scrubber()
        self._otlp = otlp.OTLPSpanExporter()
        self._taken = importlib.import_module("opentelemetry.sdk.trace.export").SpanExportResult.SUCCESS

    def send(self, spans: Sequence[Span]) -> bool:
        return bool(self._otlp.export([self._made(span) for span in spans]) == self._taken)

    def end(self) -> None:
        self._otlp.shutdown()

    def _made(self, span: Span) -> Any:
        status = self._api.Status()
        if span.error:
            status = self._api.Status(self._api.StatusCode.ERROR, self._scrubber.clean_text(span.error))
        return self._sdk.ReadableSpan(
            span.name,
            context=self._context(span.trace, span.span),
            parent=self._context(span.trace, span.parent) if span.parent else None,
            resource=self._resource,
            attributes=self._scrubber.clean(span.facts),
            status=status,
            start_time=int(span.start * NANOSECONDS),
            end_time=int(span.end * NANOSECONDS),
            instrumentation_scope=self._scope,
        )

    def _context(self, trace: int, span: int) -> Any:
        return self._api.SpanContext(trace, span, is_remote=False, trace_flags=self._api.TraceFlags(1))
