"""Traces: made of the journal, one for each attempt, and one also over a kill."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast.server.observability.tracing import Span, Spans
from holdfast.storage.journal import data_root
from holdfast.storage.journal.reader import Chain
from kit.ops import running
from kit.program import holdfast
from kit.project import add, landed, layout, state
from kit.server import served
from kit.waiting import wait_for

# A part of the libraries that a process with them has in its memory.
PROTOBUF = "google/_upb"
TWO_TURNS = "write a.txt one\nspend 0.25 50\nwrite b.txt two"
# Of the extra `otel`; another library may bring the API of it alone.
IS_INSTALLED = importlib.util.find_spec("opentelemetry") is not None and bool(
    importlib.util.find_spec("opentelemetry.sdk")
)
needs_libraries = pytest.mark.skipif(
    not IS_INSTALLED and not os.environ.get("HOLDFAST_OPS"),
    reason="the OpenTelemetry libraries are not installed; `make test-ops` brings them along",
)


def made(repo: Path) -> list[Span]:
    """The spans of all that the journal has."""
    spans = Spans(layout(repo), data_root.read_format(layout(repo)).repository)
    return [span for run, entry in Chain(layout(repo).wal).entries() for span in spans.spans_of(run, entry)]


def expect_whole(spans: list[Span]) -> None:
    """One tree with the attempt on top, and nobody outside of their parent's time."""
    [top] = [span for span in spans if span.parent == 0]
    by_id = {span.span: span for span in spans}
    assert top.name == "attempt" and len(by_id) == len(spans) and {span.trace for span in spans} == {top.trace}
    for span in spans:
        assert span.start <= span.end
        if span is not top:
            parent = by_id[span.parent]
            assert parent.start <= span.start and span.end <= parent.end, (span, parent)


# -- from the journal alone -------------------------------------------------------------------------------------------


def test_an_attempt_is_one_trace_with_its_turns_gates_and_landing(repo: Path) -> None:
    add(repo, "a", TWO_TURNS, verify=["test -e a.txt", "test -e b.txt"])
    holdfast(repo, "run")
    spans = made(repo)
    expect_whole(spans)
    assert Counter(span.name for span in spans) == {
        "attempt": 1, "spawn": 1, "turn": 2, "verify": 1, "gate": 2, "land": 1, "refresh": 1,
    }  # fmt: skip
    assert all(span.facts["holdfast.attempt"] == "a.1" and not span.error for span in spans)
    turns = [span for span in spans if span.name == "turn"]
    assert [(span.facts["holdfast.turn"], span.facts["holdfast.tool"]) for span in turns] == [
        (1, "write"),
        (2, "write"),
    ]
    assert sum(span.facts["holdfast.usd"] for span in turns) == 0.25
    [verify] = [span for span in spans if span.name == "verify"]
    gates = [span for span in spans if span.name == "gate"]
    assert [span.facts["holdfast.gate"] for span in gates] == ["verify-1", "verify-2"]
    assert {span.parent for span in gates} == {verify.span} and gates[0].end <= gates[1].start


@pytest.mark.heavy
def test_a_failed_span_says_so_and_another_attempt_is_another_trace(repo: Path) -> None:
    add(repo, "a", "write a.txt one\nattempt 2: write b.txt two", verify=["test -e b.txt"], max_attempts=2)
    holdfast(repo, "run")
    spans = made(repo)
    first, second = ([span for span in spans if span.facts["holdfast.attempt"] == name] for name in ("a.1", "a.2"))
    assert len(first) + len(second) == len(spans)
    expect_whole(first)
    expect_whole(second)
    assert first[0].trace != second[0].trace
    assert {span.name for span in first if span.error} == {"attempt", "verify", "gate"}
    assert "gate_failed" in next(span.error for span in first if span.name == "attempt")
    assert not [span for span in second if span.error]


@pytest.mark.parametrize("ending", ["split", "block", "release", "lapse", "fail"])
def test_an_attempt_has_its_span_however_it_ends(repo: Path, ending: str) -> None:
    with served(repo, HOLDFAST_LEASE_S="0.5" if ending == "lapse" else "60") as server:
        ask = server.operator.post
        ask("/tasks/batch", {"tasks": [{"id": "a", "goal": "x"}, {"id": "b", "goal": "x"}]})
        claim = ask("/tasks/a/claim", {"worker": "w"})["claim"]
        if ending == "split":
            ask("/tasks/a/split", {"tasks": [{"goal": "part of it"}]})
        elif ending == "block":
            ask("/tasks/a/block", {"on": ["b"]})
        elif ending == "release":
            ask("/tasks/a/release", {"claim": claim})
        elif ending == "lapse":
            wait_for(lambda: str(state(repo).tasks["a"].state) == "OPEN", "the end of the lease")
        else:
            ask("/tasks/a/fail", {"claim": claim, "reason": "no luck"})
    [top] = [span for span in made(repo) if span.parent == 0]
    assert top.name == "attempt" and top.facts["holdfast.attempt"] == "a.1" and top.start < top.end
    assert bool(top.error) == (ending == "fail")


def test_ids_follow_from_the_journal_and_the_repository(repo: Path, tmp_path: Path) -> None:
    add(repo, "a", TWO_TURNS)
    holdfast(repo, "run")
    assert made(repo) == made(repo)
    elsewhere = Spans(layout(repo), "another")
    others = [span for run, entry in Chain(layout(repo).wal).entries() for span in elsewhere.spans_of(run, entry)]
    assert {span.trace for span in others}.isdisjoint(span.trace for span in made(repo))


def test_without_the_libraries_it_says_what_to_type_and_goes_on(repo: Path) -> None:
    add(repo, "a", TWO_TURNS)
    # `make test-ops` has them where Python looks first.
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "PYTHONPATH": "", "HOLDFAST_SERVER__ENABLED": "true"}
    said = holdfast(repo, "run", "--plain", env=env)
    assert landed(repo) == ["a"]
    assert "OTEL_EXPORTER_OTLP_ENDPOINT asks for traces" in said and "pip install 'holdfast[otel]'" in said


# -- to a collector ---------------------------------------------------------------------------------------------------


class Collector:
    """Takes what is sent by OTLP/HTTP, and keeps it by span id."""

    def __init__(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        collector = self
        self.spans: dict[int, Any] = {}
        self.services: set[str] = set()
        self.refuses = False
        self.asked = 0

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["content-length"]))
                collector.asked += 1
                if not collector.refuses and self.path == "/v1/traces":
                    collector.take(ExportTraceServiceRequest.FromString(content))
                self.send_response(503 if collector.refuses else 200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self._server.server_port}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2",
            "NO_PROXY": "*",
        }

    def take(self, request: Any) -> None:
        for resource in request.resource_spans:
            named = {each.key: each.value.string_value for each in resource.resource.attributes}
            self.services.add(named["service.name"])
            for scope in resource.scope_spans:
                self.spans |= {int.from_bytes(span.span_id, "big"): span for span in scope.spans}

    def has_all_of(self, repo: Path) -> bool:
        return {span.span for span in made(repo)} <= set(self.spans)

    @contextlib.contextmanager
    def listening(self) -> Iterator[Collector]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector().listening() as listening:
        yield listening


@needs_libraries
def test_a_collector_gets_what_the_journal_says(repo: Path, collector: Collector) -> None:
    add(repo, "a", TWO_TURNS, verify=["test -e a.txt"])
    add(repo, "b", "write c.txt three", verify=["false"], max_attempts=1)
    with running(repo, **collector.env) as server:
        server.wait_for_state("a", "CLOSED")
        server.wait_for_state("b", "FAILED")
        wait_for(lambda: collector.has_all_of(repo), "all spans")
        assert PROTOBUF in Path(f"/proc/{server.process.pid}/maps").read_text()
        server.stop()
    expected = {span.span: span for span in made(repo)}
    assert set(collector.spans) == set(expected) and collector.services == {"holdfast"}
    for number, span in expected.items():
        sent = collector.spans[number]
        assert sent.name == span.name and int.from_bytes(sent.trace_id, "big") == span.trace
        assert int.from_bytes(sent.parent_span_id, "big") == span.parent
        assert sent.start_time_unix_nano == int(span.start * 1e9) and sent.end_time_unix_nano == int(span.end * 1e9)
        assert (sent.status.code == 2) == bool(span.error) and sent.status.message == span.error
        attributes = {each.key: each.value.WhichOneof("value") for each in sent.attributes}
        assert attributes["holdfast.attempt"] == "string_value" and set(attributes) == set(span.facts)


@needs_libraries
def test_a_trace_goes_on_after_a_kill(repo: Path, collector: Collector, tmp_path: Path) -> None:
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"
    add(repo, "a", TWO_TURNS, verify=[f"touch {begun}; while ! test -e {go_on}; do sleep 0.05; done"])
    with running(repo, **collector.env) as server:
        wait_for(begun.exists, "the gate")
        wait_for(lambda: len(collector.spans) == 3, "the start and both turns")
        server.kill()
    before = dict(collector.spans)
    go_on.touch()
    with running(repo, **collector.env) as server:
        server.wait_for_state("a", "CLOSED")
        wait_for(lambda: collector.has_all_of(repo), "all spans")
    assert len({span.trace_id for span in collector.spans.values()}) == 1 and set(before) < set(collector.spans)
    expect_whole(made(repo))
    # The gate's first run ended with the kill, and recovery has said so in the second run.
    verifies = [span for span in made(repo) if span.name == "verify"]
    assert [bool(span.error) for span in verifies] == [True, False]
    runs = {span.facts["holdfast.run"] for span in made(repo)}
    assert len(runs) == 2


@needs_libraries
def test_spans_that_the_collector_did_not_take_are_sent_by_the_next_run(repo: Path, collector: Collector) -> None:
    collector.refuses = True
    add(repo, "a", TWO_TURNS)
    with running(repo, **collector.env) as server:
        server.wait_for_state("a", "CLOSED")
        wait_for(lambda: collector.asked > 0, "the collector being asked")
        server.kill()
    assert not collector.spans
    collector.refuses = False
    with running(repo, **collector.env):
        wait_for(lambda: collector.has_all_of(repo), "all spans of the run before")
    assert len(collector.spans) == len(made(repo)) > 4


@needs_libraries
def test_nothing_is_sent_or_loaded_unless_it_is_asked_for(repo: Path, collector: Collector) -> None:
    add(repo, "a", TWO_TURNS)
    with running(repo, **{**collector.env, "OTEL_SDK_DISABLED": "true"}) as server:
        server.wait_for_state("a", "CLOSED")
        maps = Path(f"/proc/{server.process.pid}/maps").read_text()
        server.stop()
    assert not collector.asked and PROTOBUF not in maps
