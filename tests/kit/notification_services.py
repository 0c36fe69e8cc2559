"""Services that take notifications, on loopback: HTTP for `json://` and `ntfy://`, and SMTP; stateful, with faults.

`fail` is a list of what becomes of the next requests: a status; `cut`, the connection ends before an answer; `keep`,
the message is kept and the connection ends before an answer; None, all is well.
"""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

Fault = int | Literal["cut", "keep"] | None


class WebService:
    """What was received, in order, and the cache of ntfy. `headers` has those of each request that was kept."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.polls: list[str] = []
        self.fail: list[Fault] = []
        self.fired = 0
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                fault = service.fail.pop(0) if service.fail else None
                service.fired += fault is not None
                if fault in (None, "keep"):
                    service.headers.append(dict(self.headers))
                    service.received.append({**json.loads(body), "time": time.time()})
                if fault in ("cut", "keep"):
                    self.connection.close()
                    return
                self._reply(fault if isinstance(fault, int) else 200, b'{"id":"x"}')

            def do_GET(self) -> None:
                asked = urlsplit(self.path)
                service.polls.append(self.path)
                topic, since = asked.path.split("/")[1], float(parse_qs(asked.query)["since"][0])
                found = [each for each in service.received if each.get("topic") == topic and each["time"] >= since]
                self._reply(200, b"".join(json.dumps({**each, "event": "message"}).encode() + b"\n" for each in found))

            def _reply(self, status: int, content: bytes) -> None:
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("content-length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]

    @property
    def titles(self) -> list[str]:
        return [str(each["title"]) for each in self.received]


class MailService:
    """The texts of the mails that were taken. `fail`: codes for the next ones instead of 250."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self.fail: list[int] = []
        self.fired = 0
        service = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self._say("220 loopback")
                while line := self.rfile.readline().decode(errors="replace").strip():
                    word = line.split(" ")[0].upper()
                    if word == "DATA":
                        self._say("354 go on")
                        self._say(f"{self._take()} done")
                    elif word == "QUIT":
                        self._say("221 bye")
                        return
                    else:
                        self._say("250 ok")

            def _take(self) -> int:
                lines = []
                while (line := self.rfile.readline().decode(errors="replace")) not in (".\r\n", ""):
                    lines.append(line)
                if service.fail:
                    service.fired += 1
                    return service.fail.pop(0)
                service.received.append("".join(lines))
                return 250

            def _say(self, line: str) -> None:
                self.wfile.write(f"{line}\r\n".encode())

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]


@contextlib.contextmanager
def running(service: Any) -> Iterator[Any]:
    """The service answers while here; before and after, connections to it are refused."""
    thread = threading.Thread(target=service._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service._server.shutdown()
        service._server.server_close()
        thread.join()
