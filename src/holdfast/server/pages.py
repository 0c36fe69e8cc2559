"""Small pages for people who come by a link: plain HTML, without scripts, and nothing is fetched for them."""

from __future__ import annotations

from html import escape

from starlette.responses import Response

from holdfast.server.operations import Raw
from holdfast.server.problems import Problem

HEADERS = {
    "content-security-policy": "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not `no-referrer`: then a browser would not say of which origin the page's own form is.
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
    "x-robots-tag": "noindex",
}
MEDIA_TYPE = "text/html; charset=utf-8"


def html_page(title: str, body: str) -> Raw:
    """`body` is markup; what it quotes is escaped already."""
    return Raw(_text(title, body), MEDIA_TYPE, HEADERS)


def problem_page(problem: Problem) -> Response:
    document = problem.document
    content = _text(document.title, f"<p>{escape(document.detail)}</p>")
    return Response(content, document.status, media_type=MEDIA_TYPE, headers={**HEADERS, **problem.headers})


def _text(title: str, body: str) -> bytes:
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    shown = f"<title>{escape(title)}</title></head><body><h1>{escape(title)}</h1>{body}</body></html>"
    return f'<!doctype html><html lang="en"><head>{head}{shown}'.encode()
