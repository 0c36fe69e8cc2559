"""A model on loopback for the tests of real agents: one server that speaks four APIs and follows a scenario.

    with ModelServer([Step(calls=[Call("Write", file_path="a", content="b")]), Step("I am done.")]) as model:
        … run a CLI with model.url as its base URL …
        model.requests      what was asked, in order; `.text` is the whole body, `.has("…")` looks into it
        model.counted       the tokens that its complete answers reported: (input, output)

- Anthropic Messages: POST /v1/messages                       (SSE or plain)      claude
- OpenAI Responses: POST /v1/responses                        (SSE)               codex
- OpenAI chat completions: POST /v1/chat/completions          (SSE or plain)      opencode, aider, mini
- Gemini: POST /v1beta/models/M:streamGenerateContent, :generateContent           gemini

Each request takes the next step; after the last one every answer is a plain text. A request that offers no tools is
the CLI's own business (a title, a summary): it is answered with a word, listed in `model.aside`, counted in
`model.counted_aside`, and takes no step; `has_tools=False` says that this CLI never offers tools. `ends`: the calls by
which this CLI learns that all is done, where a mere text is not enough. Counting tokens beforehand is answered with a
number. A request without a key is 401, everything else 404.

`model.go_down()` closes the port, so that connections are refused; `model.come_back()` listens there again.

What a step can do beside text and tool calls: see `Step`. `Step(hold=True)` keeps the answer back after its headers
until `model.release()`; `model.is_holding` says that somebody waits for it.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOLD_S_MAX = 300.0
KEYS = ("Authorization", "x-api-key", "x-goog-api-key")
AFTER_THE_LAST = "There is nothing left to do."


class Call:
    """One tool call, by the CLI's own name for the tool; `space/name` for a tool in a namespace (Responses).

    Without a name it is no call: its `text` is part of the answer, for a CLI that reads its orders from there (chat).
    """

    def __init__(self, name: str, **args: Any) -> None:
        self.name, self.args = name, args


@dataclass
class Step:
    """One answer. `usage`: the tokens that it reports, in and out.

    `status`, `headers`, `error`: an HTTP error instead. `body`: that error's whole body. `reset`: the connection is
    reset before a word of the answer. `drop_after`: it is reset behind so many events, or before all of an answer that
    is no stream. `garbage`: bytes instead of a stream. `pause_s`: between two events. `chunk`: bytes of one write, so
    that letters of several bytes are torn. `refused`: the model declines. `again`: the step is used up only when it is
    skipped (an endless loop, an outage). `hold`: the answer waits until it is released, behind `hold_after` events; one
    that is no stream then waits in its middle.
    """

    text: str = ""
    calls: Sequence[Call] = ()
    usage: tuple[int, int] = (100, 10)
    hold: bool = False
    hold_after: int = 0
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    error: str = "the scenario wants it so"
    body: dict[str, Any] | None = None
    reset: bool = False
    drop_after: int | None = None
    garbage: bytes | None = None
    pause_s: float = 0.0
    chunk: int = 1 << 16
    refused: bool = False
    again: bool = False


@dataclass
class Request:
    api: str
    path: str
    body: dict[str, Any]
    step: Step | None
    at: float = field(default_factory=time.time)

    @property
    def text(self) -> str:
        return json.dumps(self.body, ensure_ascii=False)

    def has(self, text: str) -> bool:
        """Whether some text of the body has it, however deep; quotes and newlines as they were."""
        return any(text in each for each in _texts(self.body))

    @property
    def is_limited(self) -> bool:
        return self.step is not None and self.step.status == 429

    @property
    def parts(self) -> list[tuple[str, Any]]:
        """What the conversation consists of, each part with its role; without what is only about caching."""
        key = {"anthropic": "messages", "chat": "messages", "responses": "input", "gemini": "contents"}[self.api]
        found: list[tuple[str, Any]] = []
        for message in self.body.get(key, []):
            content = message.get("content", message.get("parts"))
            whole = {name: value for name, value in message.items() if name not in ("content", "parts", "role")}
            each = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
            found += [(message.get("role", ""), _bare(part)) for part in each]
            found += [(message.get("role", ""), _bare(whole))] if whole else []
        return found

    @property
    def results(self) -> list[str]:
        """Which calls' results are told, by their ids; by their names where the API has no ids."""
        told = [_result(part) for _, part in self.parts if isinstance(part, dict)]
        return [each for each in told if each]


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _bare(each) for name, each in value.items() if name not in ("cache_control", "thoughtSignature")}
    return [_bare(each) for each in value] if isinstance(value, list) else value


def _result(part: dict[str, Any]) -> str:
    if part.get("type") in ("function_call_output", "custom_tool_call_output"):
        return str(part["call_id"])
    if "functionResponse" in part:
        return str(part["functionResponse"].get("name"))
    return str(part.get("tool_use_id") or part.get("tool_call_id") or "")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        with contextlib.suppress(ValueError):
            inner = json.loads(value)
            if not isinstance(inner, str):
                yield from _texts(inner)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


class ModelServer:
    def __init__(self, steps: Sequence[Step] = (), *, has_tools: bool = True, ends: Sequence[Call] = ()) -> None:
        self._steps, self._has_tools, self._ends = list(steps), has_tools, ends
        self._lock = threading.Lock()
        self._released = threading.Event()
        self.requests: list[Request] = []
        self.aside: list[Request] = []
        self.others: list[str] = []
        self.counted, self.counted_aside = (0, 0), (0, 0)
        self.holding = 0
        self._server: ThreadingHTTPServer | None = self._listen(0)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def _listen(self, port: int) -> ThreadingHTTPServer:
        server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        server.daemon_threads = True
        return server

    def _serve(self) -> None:
        assert self._server is not None
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> ModelServer:
        self._serve()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self.go_down()

    # -- the network --------------------------------------------------------------------------------------------------

    def go_down(self) -> None:
        """Connections are refused from now on."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def come_back(self) -> None:
        self._server = self._listen(self.port)
        self._serve()

    # -- the scenario -------------------------------------------------------------------------------------------------

    def then(self, *steps: Step) -> None:
        """More to do, behind what is left."""
        with self._lock:
            self._steps += steps

    def skip(self) -> None:
        """The step that is next, or that stands there for ever, is over."""
        with self._lock:
            del self._steps[:1]

    @property
    def left(self) -> int:
        return len(self._steps)

    @property
    def is_holding(self) -> bool:
        return self.holding > 0

    def release(self) -> None:
        """Lets every held answer go, and every later one."""
        self._released.set()

    def _next(self, api: str, path: str, body: dict[str, Any]) -> tuple[Step, bool]:
        is_aside = self._has_tools and not body.get("tools")
        with self._lock:
            if is_aside:
                step = Step("Work", usage=(7, 3))
            elif not self._steps:
                step = Step(AFTER_THE_LAST)
            else:
                step = self._steps[0] if self._steps[0].again else self._steps.pop(0)
            if not is_aside and not step.calls and not step.refused:
                step = replace(step, calls=self._ends)
            (self.aside if is_aside else self.requests).append(Request(api, path, body, step))
        return step, is_aside

    def _told(self, usage: tuple[int, int], is_aside: bool) -> None:
        """The answer went out as a whole, its usage with it."""
        with self._lock:
            name = "counted_aside" if is_aside else "counted"
            before = getattr(self, name)
            setattr(self, name, (before[0] + usage[0], before[1] + usage[1]))


# -- the four APIs: what an answer looks like -------------------------------------------------------------------------

Event = tuple[str, Any]


def _anthropic(step: Step, body: dict[str, Any], number: int) -> tuple[list[Event], dict[str, Any]]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": step.text}] if step.text else []
    blocks += [
        {"type": "tool_use", "id": f"toolu_{number:03}{place:02}", "name": call.name, "input": call.args}
        for place, call in enumerate(step.calls)
    ]
    why = "refusal" if step.refused else "tool_use" if step.calls else "end_turn"
    usage = {
        "input_tokens": step.usage[0], "output_tokens": step.usage[1],
        "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
    }  # fmt: skip
    message = {"id": f"msg_{number:05}", "type": "message", "role": "assistant", "model": body.get("model", "m")}
    ends = {"stop_reason": why, "stop_sequence": None}
    begun = message | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage | {"output_tokens": 1}}
    events: list[Event] = [("message_start", {"message": begun})]
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            empty: dict[str, Any] = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": part} for part in _pieces(step.text)]
        else:
            empty = block | {"input": {}}
            deltas = [
                {"type": "input_json_delta", "partial_json": part} for part in _pieces(json.dumps(block["input"]))
            ]
        events.append(("content_block_start", {"index": index, "content_block": empty}))
        events += [("content_block_delta", {"index": index, "delta": delta}) for delta in deltas]
        events.append(("content_block_stop", {"index": index}))
    events += [("message_delta", {"delta": ends, "usage": usage}), ("message_stop", {})]
    return [(name, {"type": name, **data}) for name, data in events], message | ends | {
        "content": blocks,
        "usage": usage,
    }


def _responses(step: Step, body: dict[str, Any], number: int) -> tuple[list[Event], dict[str, Any]]:
    made = {"id": f"resp_{number:05}", "object": "response", "model": body.get("model", "m"), "output": []}
    items: list[dict[str, Any]] = []
    if step.text:
        content = (
            {"type": "refusal", "refusal": step.text} if step.refused else {"type": "output_text", "text": step.text}
        )
        items.append({"type": "message", "id": f"item_{number:05}", "role": "assistant", "content": [content]})
    for place, call in enumerate(step.calls):
        space, _, name = call.name.rpartition("/")
        ids = {"id": f"fc_{number:03}{place:02}", "call_id": f"call_{number:03}{place:02}", "name": name}
        ids |= {"namespace": space} if space else {}
        if set(call.args) == {"input"}:
            items.append({"type": "custom_tool_call", **ids, "input": call.args["input"]})
        else:
            items.append({"type": "function_call", **ids, "arguments": json.dumps(call.args)})
    events: list[Event] = [("response.created", {"response": made | {"status": "in_progress"}})]
    for index, item in enumerate(items):
        empty = item | {"content": []} if "content" in item else item
        events.append(("response.output_item.added", {"output_index": index, "item": empty}))
        if item["type"] == "message" and not step.refused:
            place = {"item_id": item["id"], "output_index": index, "content_index": 0}
            events += [("response.output_text.delta", {**place, "delta": part}) for part in _pieces(step.text)]
        events.append(("response.output_item.done", {"output_index": index, "item": item}))
    usage = {
        "input_tokens": step.usage[0], "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": step.usage[1], "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": sum(step.usage),
    }  # fmt: skip
    whole = made | {"status": "completed", "output": items, "usage": usage}
    events.append(("response.completed", {"response": whole}))
    return [(name, {"type": name, "sequence_number": at, **data}) for at, (name, data) in enumerate(events)], whole


def _chat(step: Step, body: dict[str, Any], number: int) -> tuple[list[Event], dict[str, Any]]:
    texts = [call.args["text"] for call in step.calls if not call.name]
    step = replace(step, text="\n\n".join([step.text, *texts]), calls=[call for call in step.calls if call.name])
    why = "content_filter" if step.refused else "tool_calls" if step.calls else "stop"
    head = {"id": f"chat_{number:05}", "created": int(time.time()), "model": body.get("model", "m")}
    usage = {"prompt_tokens": step.usage[0], "completion_tokens": step.usage[1], "total_tokens": sum(step.usage)}
    calls = [
        {"index": place, "id": f"call_{number:03}{place:02}", "type": "function",
         "function": {"name": call.name, "arguments": json.dumps(call.args)}}
        for place, call in enumerate(step.calls)
    ]  # fmt: skip
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": part} for part in _pieces(step.text)] if step.text else []
    deltas += [{"tool_calls": [call]} for call in calls]
    chunk = head | {"object": "chat.completion.chunk"}
    chunks = [chunk | {"choices": [{"index": 0, "delta": each, "finish_reason": None}]} for each in deltas]
    chunks.append(chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": why}]})
    chunks.append(chunk | {"choices": [], "usage": usage})
    message: dict[str, Any] = {"role": "assistant", "content": step.text or None}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": why}
    whole = head | {"object": "chat.completion", "choices": [choice], "usage": usage}
    return [("", each) for each in chunks] + [("", "[DONE]")], whole


def _gemini(step: Step, body: dict[str, Any], number: int) -> tuple[list[Event], dict[str, Any]]:
    # What is held back for safety is not sent.
    text = "" if step.refused else step.text
    parts: list[dict[str, Any]] = [{"text": part} for part in _pieces(text)] if text else []
    parts += [{"functionCall": {"name": call.name, "args": call.args}} for call in step.calls]
    usage = {
        "promptTokenCount": step.usage[0], "candidatesTokenCount": step.usage[1], "totalTokenCount": sum(step.usage)
    }  # fmt: skip
    ends = {"finishReason": "SAFETY" if step.refused else "STOP"}
    head = {"responseId": f"g{number:05}", "modelVersion": "m"}
    chunks = [{"candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}}], **head} for part in parts]
    last = {"index": 0, "content": {"role": "model", "parts": []}, **ends}
    chunks.append({"candidates": [last], "usageMetadata": usage, **head})
    answer = {"index": 0, "content": {"role": "model", "parts": parts}, **ends}
    return [("", each) for each in chunks], {"candidates": [answer], "usageMetadata": usage, **head}


def _pieces(text: str, size: int = 1000) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)] or [""]


Answer = Callable[[Step, dict[str, Any], int], tuple[list[Event], dict[str, Any]]]


def _api(path: str) -> tuple[str, Answer] | None:
    bare = path.partition("?")[0].rstrip("/")
    if bare.endswith("/messages"):
        return "anthropic", _anthropic
    if bare.endswith("/responses"):
        return "responses", _responses
    if bare.endswith("/chat/completions"):
        return "chat", _chat
    if bare.endswith(("GenerateContent", ":generateContent")):
        return "gemini", _gemini
    return None


# -- HTTP -------------------------------------------------------------------------------------------------------------


def _handler(model: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        # Every answer ends with its connection: what was dropped in the middle then looks like it.
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            model.others.append(f"GET {self.path}")
            self._json(200 if self.path.endswith("/models") else 404, {"object": "list", "data": [], "models": []})

        def do_HEAD(self) -> None:
            self._json(200, {})

        def do_POST(self) -> None:
            body = self._body()
            found = _api(self.path)
            if self.path.partition("?")[0].endswith(("count_tokens", ":countTokens")):
                self._json(200, {"input_tokens": 42, "totalTokens": 42})
            elif not any((self.headers.get(name) or "").removeprefix("Bearer").strip() for name in KEYS):
                model.others.append(f"POST {self.path} without a key")
                self._json(401, {"error": {"type": "authentication_error", "message": "there is no key"}})
            elif found is None:
                model.others.append(f"POST {self.path}")
                self._json(404, {"error": {"type": "not_found", "message": self.path}})
            else:
                # A CLI that was killed hangs up; nobody needs to hear of it.
                with contextlib.suppress(OSError):
                    self._answer(*found, body)
            self.close_connection = True

        def _body(self) -> dict[str, Any]:
            if self.headers.get("Transfer-Encoding", "") == "chunked":
                data = b""
                while size := int(self.rfile.readline().strip() or b"0", 16):
                    data += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            else:
                data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                body = json.loads(data or b"{}")
            except ValueError:
                body = {"unreadable": data.decode(errors="replace")}
            return body if isinstance(body, dict) else {"body": body}

        def _json(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            more = {"Content-Type": "application/json", "Content-Length": str(len(data)), "Connection": "close"}
            for name, value in (more | (headers or {})).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def _answer(self, api: str, make: Answer, body: dict[str, Any]) -> None:
            step, is_aside = model._next(api, self.path, body)
            number = len(model.requests) + len(model.aside)
            if step.reset:
                self._reset()
                return
            if step.status != 200:
                self._json(step.status, step.body or _error(api, step), step.headers)
                return
            events, whole = make(step, body, number)
            is_stream = bool(body.get("stream")) or "stream" in self.path
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream" if is_stream else "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.flush()
            if step.hold and not step.hold_after:
                self._wait()
            if step.garbage is not None:
                self.wfile.write(step.garbage)
                return
            if not is_stream and step.drop_after is not None:
                self._reset()
                return
            if not is_stream:
                data = json.dumps(whole).encode()
                half = len(data) // 2 if step.hold_after else 0
                self._write(data[:half], step.chunk)
                if half:
                    self._wait()
                self._write(data[half:], step.chunk)
            else:
                assert step.hold_after < len(events), "there is nothing to be held"
                for place, (name, event) in enumerate(events):
                    if step.hold_after and place == step.hold_after:
                        self._wait()
                    if place == step.drop_after:
                        self._reset()
                        return
                    self._write(_sse(name, event), step.chunk)
                    time.sleep(step.pause_s)
            model._told(step.usage, is_aside)

        def _wait(self) -> None:
            """Until it is released, or the other side is gone."""
            model.holding += 1
            try:
                deadline = time.monotonic() + HOLD_S_MAX
                while not model._released.wait(0.05) and time.monotonic() < deadline:
                    self.connection.settimeout(0.001)
                    try:
                        if not self.connection.recv(1, socket.MSG_PEEK):
                            raise ConnectionResetError
                    except TimeoutError:
                        pass
                    finally:
                        self.connection.settimeout(None)
            finally:
                model.holding -= 1

        def _reset(self) -> None:
            self.wfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

        def _write(self, data: bytes, size: int) -> None:
            for at in range(0, len(data), size):
                self.wfile.write(data[at : at + size])
                self.wfile.flush()

    return Handler


def _sse(name: str, data: Any) -> bytes:
    head = f"event: {name}\n" if name else ""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"{head}data: {text}\n\n".encode()


def _error(api: str, step: Step) -> dict[str, Any]:
    kinds = {401: "authentication_error", 429: "rate_limit_error", 400: "invalid_request_error"}
    kind = kinds.get(step.status, "api_error")
    if api == "anthropic":
        return {"type": "error", "error": {"type": kind, "message": step.error}}
    if api == "gemini":
        words = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 429: "RESOURCE_EXHAUSTED"}
        told = words.get(step.status, "INTERNAL")
        wait = {
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": f"{step.headers.get('retry-after')}s",
        }
        details = [wait] if "retry-after" in step.headers else []
        return {"error": {"code": step.status, "message": step.error, "status": told, "details": details}}
    return {"error": {"type": kind, "code": kind, "message": step.error}}
