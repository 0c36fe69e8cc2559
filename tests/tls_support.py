"""A server on loopback that speaks TLS with a certificate that nobody vouches for."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def untrusted(folder: Path) -> Iterator[str]:
    """Its address. Needs openssl, which makes the certificate."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += ["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_greet, args=(listening, context), daemon=True).start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        # Wakes who waits for the next one.
        listening.shutdown(socket.SHUT_RDWR)


def _greet(listening: socket.socket, context: ssl.SSLContext) -> None:
    """Whoever trusts the certificate after all is left without an answer."""
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with contextlib.suppress(OSError), connection, context.wrap_socket(connection, server_side=True):
            pass
