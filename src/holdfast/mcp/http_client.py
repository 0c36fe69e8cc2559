"""One request to the task server, over a connection of its own."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from urllib.parse import urlsplit

# Longer than a landing that a decision waits for.
SILENT_S_MAX = 600.0


class Unreachable(Exception):
    """There was no answer. `was_sent`: the server may have got the request, and have done what it asks."""

    def __init__(self, reason: str, *, was_sent: bool) -> None:
        super().__init__(reason)
        self.was_sent = was_sent


def send(
    url: str, token: str, method: str, target: str, *, content: bytes = b"", headers: Mapping[str, str], cert: str = ""
) -> tuple[int, bytes]:
    """The status and the body of the answer. `cert`: a certificate to trust beside the system's."""
    at = urlsplit(url)
    was_sent = False
    connection = _connection(at.scheme, at.hostname or "", at.port, cert)
    try:
        connection.connect()
        was_sent = True
        given = {"authorization": f"Bearer {token}", "connection": "close", **headers}
        connection.request(method, target, content or None, given)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unreachable(str(error) or type(error).__name__, was_sent=was_sent) from error
    finally:
        connection.close()


def _connection(scheme: str, host: str, port: int | None, cert: str) -> http.client.HTTPConnection:
    if scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=SILENT_S_MAX)
    import ssl

    context = ssl.create_default_context()
    if cert:
        context.load_verify_locations(cert)
    return http.client.HTTPSConnection(host, port, timeout=SILENT_S_MAX, context=context)
