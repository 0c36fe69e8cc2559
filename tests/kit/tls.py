"""A server on loopback that speaks TLS with a certificate that nobody vouches for."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
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
        # Wakes the thread that waits for the next one.
        listening.shutdown(socket.SHUT_RDWR)


def _greet(listening: socket.socket, context: ssl.SSLContext) -> None:
    """A client that trusts the certificate after all is left without an answer."""
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with contextlib.suppress(OSError), connection, context.wrap_socket(connection, server_side=True):
            pass


@contextlib.contextmanager
def answering(text: bytes) -> Iterator[int]:
    """The port of a server that answers the first words of one client with these, or without any resets."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_answer, args=(listening, text), daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


def _answer(listening: socket.socket, text: bytes) -> None:
    connection, _ = listening.accept()
    with connection:
        if text:
            connection.recv(1 << 16)
            connection.sendall(text)
        else:
            connection.recv(1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
